"""Copies that make the same of what they share are told from copies that do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tests.graph.text_graph import view_of
from tf_wu_shard.graph import function_body
from tf_wu_shard.graph.op import Value, parse_value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.step import copy_values
from tf_wu_shard.step.copy_values import CopyValues, Input
from tf_wu_shard.step.origins import Origin

GIVEN = """
x = Placeholder() [8]
y = Placeholder() [8]
zero = Const() {value=0}
one = Const() {value=1}
halves = Split(zero, x) {num_split=2} [4] [4]
drawn = RandomUniform(one) [4]
"""
FUNCTIONS = {
    "doubles": ("p", "s = Mul(p, p)\n", "s:z:0"),
    "likewise": ("q", "t = Mul(q, q)\n", "t:z:0"),
    "negates": ("p", "s = Neg(p)\n", "s:y:0"),
    "cuts": ("p", "n = Const() {value=0}\ns = Split(n, p) {num_split=2}\n", "s:o:0 s:o:1"),
    "repeats": ("p", "s = Neg(p)\nt = Neg(p)\n", "s:y:0 t:y:0"),
    "of_reads": ("v p", "r = ReadVariableOp(v)\ns = Mul(r, p)\n", "s:z:0"),
    "draws": ("p", "s = RandomUniform(p)\n", "s:o:0"),
    "takes_first": ("p q s", "m = Mul(p, s)\n", "m:z:0 m:z:0"),
    "takes_own": ("p q s", "", "p q"),
    "go_on": ("i a b", "m = Less(i, i)\n", "m:z:0"),
    "turns": ("i a b", "s = Mul(a, i)\nt = Mul(b, i)\n", "i s:z:0 t:z:0"),
    "parts": ("i a b", "s = Mul(a, i)\nt = Mul(b, b)\n", "i s:z:0 t:z:0"),
    "holds0": ("p", "s = Const() {value=0}\n", "s:output:0"),
    "holds1": ("p", "s = Const() {value=1}\n", "s:output:0"),
    "first": ("p q", "s = Neg(p)\n", "s:y:0"),
    "itself": ("p", "s = PartitionedCall(p) {f=&itself} [4]\n", "s:output:0"),
    "more": ("i k", "m = Less(i, k)\n", "m:z:0"),
    "round": ("i k", "m = Mul(i, k)\n", "m:z:0 k"),
    "writes": ("v p", "n = Neg(p)\nput = AssignAddVariableOp(v, n)\n", "p"),
    "gives": ("v p", "put = AssignVariableOp(v, p)\n", "p"),
    "leaves": ("v p", "", "p"),
    "writes_both": (
        *("v w p", "n = Neg(p)\nput = AssignVariableOp(v, n)\nputs = AssignVariableOp(w, n)\n"),
        "p",
    ),
    "writes_parts": (
        "v w p",
        "n = Const() {value=0}\ns = Split(n, p) {num_split=2}\n"
        "put = AssignVariableOp(v, s:o:0)\nputs = AssignVariableOp(w, s:o:1)\n",
        "p",
    ),
}


def view(text: str) -> GraphView:
    return view_of(GIVEN + text, replicas=2, variables={"w": (4,)}, functions=FUNCTIONS)


def numbers(text: str, *values: str) -> tuple[int, ...]:
    """The numbers of values, each of which one copy is made of."""
    made = [parse_value(value) for value in values]
    of = CopyValues(view(text), {v: 1 << n for n, v in enumerate(made)}, len(made))
    return tuple(map(of.number, made))


@pytest.mark.parametrize(
    "text",
    [
        "g# = Mul(x, x)",
        "g# = Const() {value=7}",
        "n# = Const() {value=7}\nm# = Mul(n#, one)\ng# = Neg(m#)",
        "g# = Mul(x, y)",
        "g# = Mul(drawn, one)",
        # An Identity is what it gets, and so is one operand of several that are handed through.
        "i# = Identity(x)\ng# = Mul(i#, i#)",
        "i0 = Identity(x)\ni1 = IdentityN(y, x)\nj1 = Identity(i1:1)\nj0 = Identity(i0)\n"
        "g# = Neg(j#)",
        # What is joined is one value.
        "a# = StridedSlice(x, one)\ns = AddN(a0, a1)\ng# = Identity(s)",
        "a# = Neg(y)\ns# = AddN(a0, a1)\ng# = Identity(s#)",
        "n# = Const() {value=3}\ng# = Mul(x, n#)",
        "r# = ReadVariableOp(w#) [4]\ng# = Mul(x, r#)",
        "g# = PartitionedCall(x) {f=&doubles} [4]",
        "f0 = PartitionedCall(x) {f=&doubles} [4]\nf1 = PartitionedCall(x) {f=&likewise} [4]\n"
        "g# = Identity(f#)",
        "f = PartitionedCall(x) {f=&repeats} [4] [4]\ng0 = Neg(f)\ng1 = Neg(f:1)",
        "g# = StatefulPartitionedCall(w#, x) {f=&of_reads} [4]",
        "g = While(y, x, x) {cond=&go_on body=&turns} [4] [4] [4]\ng0 = Neg(g:1)\ng1 = Neg(g:2)",
        "g0 = AddV2(x, y)\ng1 = AddV2(y, x)",
        "n = Neg(x)\ng0 = PyFuncStateless(n) {token=a}\ng1 = PyFuncStateless(n) {token=b}",
        # One result hands on what the caller has read, and the other what it has read and computed.
        "r# = ReadVariableOp(w#) [4]\nf = If(y, r0, r1, x) {then_branch=&takes_first"
        " else_branch=&takes_own} [4] [4]\ng0 = Neg(f)\ng1 = Neg(f:1)",
        "n# = Neg(y)\ng# = PartitionedCall(x, n#) {f=&first} [4]",
        "g# = If(y, x) {then_branch=&doubles else_branch=&negates} [4]",
        "g# = While(x, y) {cond=&more body=&round} [4] [4]",
    ],
)
def test_what_is_made_of_the_same_in_the_same_way_is_equal(text: str) -> None:
    first, other = numbers(text, "g0", "g1")
    assert first == other


@pytest.mark.parametrize(
    "text",
    [
        "x# = Placeholder() [4]\ng# = Neg(x#)",
        "d# = RandomUniform(one) [4]\ng# = Neg(d#)",
        "g# = Const() {value=#}",
        "g# = PartitionedCall(one) {f=&holds#} [4]",
        "next = IteratorGetNext(one) [4] [4]\ng0 = Neg(next)\ng1 = Neg(next:1)",
        "g0 = Neg(halves)\ng1 = Neg(halves:1)",
        "n# = Const() {value=#}\ng# = StridedSlice(x, n#)",
        "g0 = Sub(x, y)\ng1 = Sub(y, x)",
        "g0 = Neg(x)\ng1 = Abs(x)",
        "r# = ReadVariableOp(w#) [4]\ng0 = Neg(r0)\ng1 = Abs(r1)",
        "g0 = Sum(x, one) {keep_dims=1}\ng1 = Sum(x, one) {keep_dims=0}",
        "n# = Neg(x)\ns0 = Mul(n0, one)\ns1 = Mul(n1, zero)\ng# = Neg(s#)",
        "f = PartitionedCall(x) {f=&cuts} [4] [4]\ng0 = Neg(f)\ng1 = Neg(f:1)",
        "f0 = PartitionedCall(x) {f=&doubles} [4]\nf1 = PartitionedCall(x) {f=&negates} [4]\n"
        "g# = Identity(f#)",
        "f0 = PartitionedCall(x) {f=&doubles} [4]\nf1 = PartitionedCall(y) {f=&doubles} [4]\n"
        "g# = Identity(f#)",
        "g# = StatefulPartitionedCall(x) {f=&draws} [4]",
        "s# = LogUniformCandidateSampler(x)\ng# = Identity(s#)",
        # Two results of one loop are equal if they begin so and each round makes the same of them.
        "g = While(x, y, y) {cond=&go_on body=&turns} [4] [4] [4]\ng0 = Neg(g)\ng1 = Neg(g:1)",
        "g = While(y, x, x) {cond=&go_on body=&parts} [4] [4] [4]\ng0 = Neg(g:1)\ng1 = Neg(g:2)",
        "g0 = If(y, x) {then_branch=&doubles else_branch=&negates} [4]\n"
        "g1 = If(y, x) {then_branch=&negates else_branch=&doubles} [4]",
        "g0 = While(x, y) {cond=&more body=&round} [4] [4]\n"
        "g1 = While(y, x) {cond=&more body=&round} [4] [4]",
    ],
)
def test_what_is_made_of_something_else_or_in_another_way_is_not(text: str) -> None:
    first, other = numbers(text, "g0", "g1")
    assert first != other


@pytest.mark.parametrize(
    "text",
    [
        "r# = ReadVariableOp(w#) [4]\ng# = Neg(r#)",
        "two = Const() {value=2}\ng# = CollectiveReduceV2(x, two, two) [8]",
        "g# = Shape(x) [1]",
        # Nothing is claimed of what nobody knows, or of what calls itself.
        "g# = PartitionedCall(x) {f=&unknown} [4]",
        "g# = PartitionedCall(x) {f=&itself} [4]",
    ],
)
def test_what_is_everybodys_is_equal(text: str) -> None:
    of = CopyValues(view(text), {Value("g0"): 1, Value("g1"): 2}, 2)
    assert of.number(Value("g0")) == of.number(Value("g1"))
    assert of.origin(Value("g0")) is of.origin(Value("g1")) is Origin.EVERYBODYS


@pytest.mark.parametrize(("function", "alike"), [("writes_both", True), ("writes_parts", False)])
def test_what_a_call_writes_to_two_copies_is_compared(function: str, *, alike: bool) -> None:
    text = f"f = StatefulPartitionedCall(w0, w1, x) {{f=&{function}}} [8]\n"
    # Behind the one result stands what is written to the arguments.
    first, other = numbers(text, "f:1", "f:2")
    assert (first == other) is alike


def test_inputs_are_what_those_say_who_hand_them_over() -> None:
    text = "a = Neg(x)\nb = Neg(y)\n"
    made = {Value("a"): 1, Value("b"): 2}
    asked: list[tuple[Mapping[str, int], int]] = []

    def both_the_same(inputs: Mapping[str, int], copies: int) -> Mapping[str, Input]:
        asked.append((inputs, copies))
        return dict.fromkeys(inputs, Input("one batch"))

    of = CopyValues(view(text), made, 2, handed=both_the_same)
    assert of.number(Value("a")) == of.number(Value("b"))
    assert asked == [({"x": 1, "y": 2}, 2)]
    nothing = CopyValues(view(text), made, 2, handed=lambda inputs, copies: {"y": Input(0)})
    assert nothing.origin(Value("a")) is Origin.EVERYBODYS
    assert nothing.origin(Value("b")) is Origin.OWN


def test_the_foremost_is_what_not_all_copies_share() -> None:
    text = "d = RandomUniform(one) [4]\ng0 = Mul(x, d)\ng1 = Neg(x)\nh = AddN(g0, g1)\n"
    of = CopyValues(view(text), {Value("g0"): 1, Value("g1"): 2}, 2)
    assert of.foremost(Value("g0")) == Value("d") and of.foremost(Value("g1")) == Value("x")
    assert of.is_alike_everywhere(Value("g0"))
    # Elsewhere another number is drawn, and nobody knows what x is there if it is no batch.
    there = CopyValues(view(text), {Value("g0"): 1, Value("g1"): 1}, 1, is_whole=False)
    assert not there.is_alike_everywhere(Value("g0")) and there.is_alike_everywhere(Value("g1"))


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("n# = Const() {value=#}\ns# = Mul(one, n#)\ng# = Mul(x, s#)", "n0"),
        # How often there is a constant of one content says nothing.
        ("n# = Const() {value=#}\nm0 = Sub(n0, one)\nm1 = Sub(n1, zero)\ng# = Neg(m#)", "n0"),
        ("m0 = Neg(halves)\nm1 = Neg(halves:1)\ng# = Mul(y, m#)", "halves"),
        ("m0 = Neg(x)\nm1 = Abs(x)\ng# = Mul(y, m#)", "m0"),
        ("m0 = Pack(x, y)\nm1 = Pack(x)\ng# = Neg(m#)", "m0"),
    ],
)
def test_two_values_are_parted_by_what_is_behind_them(text: str, where: str) -> None:
    of = CopyValues(view(text), {Value("g0"): 1, Value("g1"): 2}, 2)
    assert of.parting(Value("g0"), Value("g1")).op == where


def test_values_are_whose_the_most_own_thing_is_that_is_in_them() -> None:
    text = "a = Mul(x, y)\nb = Mul(x, one)\nc = Neg(one)\nd = Mul(b, c)\ne = Mul(a, d)\n"
    given = {"x": Input(0, Origin.ANSWERED_FOR), "y": Input(1)}
    made = dict.fromkeys(map(Value, "abcde"), 1)
    of = CopyValues(view(text), made, 1, is_whole=False, handed=lambda inputs, copies: given)
    found = {value.op: of.origin(value) for value in made}
    assert (found["a"], found["e"]) == (Origin.OWN, Origin.OWN)
    assert (found["b"], found["d"]) == (Origin.ANSWERED_FOR, Origin.ANSWERED_FOR)
    assert found["c"] is Origin.CONSTANT
    assert all(of.is_alike_everywhere(Value(name)) for name in "bcd")


@pytest.mark.parametrize(
    ("condition", "held", "is_made"),
    [
        ("VarIsInitializedOp(w#)", "ReadVariableOp(w0) [8] ^make0", True),
        # It may have had a value.
        ("Less(x, y)", "ReadVariableOp(w0) [8] ^make0", False),
        # That is not what was given.
        ("VarIsInitializedOp(w#)", "Neg(x) [8] ^make0", False),
    ],
)
def test_where_a_step_makes_a_variable_copies_are_given_what_the_first_one_is(
    condition: str, held: str, is_made: bool
) -> None:
    text = f"is# = {condition} []\n"
    makes = "{then_branch=&leaves else_branch=&gives} [8]\n"
    text += f"make0 = If(is0, w0, x) {makes}held = {held}\nmake1 = If(is1, w1, held) {makes}"
    # What each writes stands behind its result.
    first, other = numbers(text, "make0:1", "make1:1")
    assert (first == other) is is_made


@pytest.mark.parametrize(
    ("taken", "most"),
    [
        # At each level there is one more power of what was handed over, and not twice as many.
        ("m", sum(range(1, 10))),
        # Each call has another value. It would be 511 of them.
        ("a", 200),
    ],
)
def test_functions_that_call_others_twice_are_looked_at_once_a_value(
    monkeypatch: pytest.MonkeyPatch, taken: str, most: int
) -> None:
    looked: list[str] = []

    def function_view(within: GraphView, name: str, operands: Sequence[Value]) -> GraphView | None:
        looked.append(name)
        return function_body.function_view(within, name, operands)

    monkeypatch.setattr(copy_values, "function_view", function_view)
    again = "a = PartitionedCall(p) {{f=&{0}}} [4]\nm = Mul(p, p)\n"
    again += f"b = PartitionedCall({taken}) {{{{f=&{{0}}}}}} [4]\n"
    functions = {
        f"level{n}": ("p", again.format(f"level{n - 1}") + "s = Sub(a, b)\n", "s:z:0")
        for n in range(1, 9)
    }
    functions["level0"] = ("p", "s = Neg(p)\n", "s:y:0")
    calls = "g0 = PartitionedCall(x) {f=&level8} [4]\ng1 = PartitionedCall(x) {f=&level8} [4]\n"
    calls += "g2 = PartitionedCall(y) {f=&level8} [4]\n"
    made = [Value("g0"), Value("g1"), Value("g2")]
    of = view_of(GIVEN + calls, functions=functions, outputs=["g0", "g1", "g2"])
    values = CopyValues(of, {made[0]: 1}, 2)
    assert len(looked) == most
    values = CopyValues(of, {one: 1 << n for n, one in enumerate(made)}, 3)
    first, same, other = map(values.number, made)
    assert first == same != other


def test_a_read_that_is_a_replicas_own_is_told_apart() -> None:
    text = "r0 = ReadVariableOp(w0) [4]\nr1 = ReadVariableOp(w1) [4]\n"
    made = {Value("r0"): 1, Value("r1"): 2}
    of = CopyValues(view(text), made, 2, own_reads={Value("r0"), Value("r1")})
    assert of.number(Value("r0")) != of.number(Value("r1"))
