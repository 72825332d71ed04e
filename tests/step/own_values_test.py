"""What a replica has of its own is seen on its way into a variable, and what all share is none."""

from __future__ import annotations

import dataclasses

import pytest

from tests.graph.text_graph import view_of
from tf_wu_shard.graph.view import GraphView, VariableRef
from tf_wu_shard.step.copy_values import Input
from tf_wu_shard.step.own_values import written_with_own_values

SHAPES = {"w": (4,), "m": (4,)}
SHARED = "shared = Placeholder() [4]\nsize = Const() {value=2}\n"
OWN = VariableRef("own", 0, 2, (4,), 1, False, "d0")


def view(text: str, replicas: int = 2, elsewhere: int = 0) -> GraphView:
    """Copies of a program, each with a variable of its own.

    Args:
        text: The program.
        replicas: How many copies.
        elsewhere: How many more there are in other processes.
    """
    refs = {f"own{r}": dataclasses.replace(OWN, replica=r) for r in range(replicas)}
    for key, shape in SHAPES.items() if elsewhere else ():
        of_key = VariableRef(
            key, 0, replicas + elsewhere, shape, 1, True, "", True, replicas_elsewhere=elsewhere
        )
        refs |= {
            f"{key}{r}": dataclasses.replace(of_key, replica=r, device=f"d{r}")
            for r in range(replicas)
        }
    made = view_of(SHARED + text, replicas=replicas, variables=SHAPES, refs=refs)
    return made.with_inputs(["x"] if elsewhere else [], {})


def found(text: str, *keys: str) -> dict[str, str]:
    return written_with_own_values(view(text), {*(keys or ("w",))})


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("x# = Placeholder() [4] @d#\n", "x"),
        ("x# = RandomUniform(size) [4] @d#\n", "x"),
        ("x# = ReadVariableOp(own#) [4] @d#\n", "own"),
        ("it# = Placeholder()\nx# = IteratorGetNext(it#) [4] @d#\n", "it"),
        ("n# = Const() {value=#}\nx# = StatelessRandomNormalV2(size, n#) [4] @d#\n", "n"),
        # Both have axes 0 and 1, and the number is one of these.
        (
            "n# = Const() {value=#}\ni# = Const() {value=0}\nj# = Const() {value=1}\n"
            "k# = AddN(n#, i#, j#)\nx# = Mul(shared, k#) [4] @d#\n",
            "n",
        ),
    ],
    ids=(
        *("argument", "random number", "variable of each", "element", "number of the replica"),
        "number that is an axis elsewhere",
    ),
)
def test_what_each_replica_has_for_itself_moves_copies_apart(text: str, where: str) -> None:
    scaled = "g# = Mul(x#, shared) [4] @d#\nput# = AssignSubVariableOp(w#, g#) @d#\n"
    got = found(text + scaled)
    assert got.keys() == {"w"} and got["w"].rstrip("01") == where


@pytest.mark.parametrize(
    "text",
    [
        "put# = AssignVariableOp(w#, shared) @d#\n",
        "x# = ReadVariableOp(m#) [4] @d#\nput# = AssignAddVariableOp(w#, x#) @d#\n",
        "x# = Placeholder() [4] @d#\n"
        "sum# = CollectiveReduceV2(x#, size, size) {merge_op=Add final_op=Id} [4] @d#\n"
        "put# = AssignSubVariableOp(w#, sum#) @d#\n",
        # Both are handed through; the sum is written.
        "x# = Placeholder() [4] @d#\n"
        "sum# = CollectiveReduceV2(x#, size, size) {merge_op=Add final_op=Id} [4] @d#\n"
        "both# = IdentityN(sum#, x#) [4] [4] @d#\n"
        "put# = AssignSubVariableOp(w#, both#) @d#\n",
        # One device adds up what both have.
        "x# = Placeholder() [4] @d#\nsum = AddN(x0, x1) [4] @d0\n"
        "put# = AssignSubVariableOp(w#, sum) @d#\n",
        # Each copy has a constant, and they are equal.
        "n# = Const() {value=7}\nx# = Mul(shared, n#) [4] @d#\n"
        "put# = AssignVariableOp(w#, x#) @d#\n",
        # Where a step makes a variable, one copy is given its value, and the others copy that.
        "n = Const() {value=7}\nput0 = AssignVariableOp(w0, n) @d0\n"
        "held = ReadVariableOp(w0) [4] @d1 ^put0\nput1 = AssignVariableOp(w1, held) @d1\n",
        # Where the constants differ, it is summed.
        "n# = Const() {value=#}\nx# = Mul(shared, n#) [4] @d#\nsum = AddN(x0, x1) [4] @d0\n"
        "put# = AssignSubVariableOp(w#, sum) @d#\n",
        # One draws for both.
        "x = RandomUniform(size) [4] @d0\nput# = AssignVariableOp(w#, x) @d#\n",
        # Nothing is claimed of what a function makes of it that nobody knows.
        "x# = Placeholder() [4] @d#\nmade# = StatefulPartitionedCall(x#) {f=&f} [4] @d#\n"
        "put# = AssignVariableOp(w#, made#) @d#\n",
        # Gradients have shapes that all share.
        "x# = Placeholder() [?] @d#\nsizes# = Shape(x#) [1] @d#\n"
        "flat# = Reshape(shared, sizes#) [4]\n"
        "put# = AssignVariableOp(w#, flat#) @d#\n",
        # It is read beside the write.
        "x# = Placeholder() [4] @d#\nold# = ReadVariableOp(w#) [4] @d#\n"
        "shown# = Mul(x#, old#) [4] @d#\nput# = AssignVariableOp(w#, shared) @d# ^shown#\n",
    ],
)
def test_what_all_replicas_share_does_not(text: str) -> None:
    assert found(text) == {}


def test_what_all_copies_share_they_may_make_something_else_of() -> None:
    text = "cut = Split(size, shared) {num_split=2} [2] [2]\nput0 = AssignVariableOp(w0, cut)\n"
    assert found(text + "put1 = AssignVariableOp(w1, cut:1)\n") == {"w": "cut"}
    assert found(text + "put1 = AssignVariableOp(w1, cut)\n") == {}
    assert found(text + "put1 = AssignAddVariableOp(w1, cut)\n") == {"w": "shared"}
    read = "r# = ReadVariableOp(m#) [4]\n"
    read += "put# = AssignVariableOp(w#, g#)\n"
    assert found("g# = Neg(r#)\n" + read) == {}
    assert found("g0 = Neg(r0)\ng1 = Abs(r1)\n" + read) == {"w": "g0"}


@pytest.mark.parametrize(
    ("part", "where"),
    [
        ("shared) {end_mask=0}", {}),
        ("x#) {end_mask=0}", {"w": "x0"}),
        # Which part it writes may be in an attribute.
        ("shared) {end_mask=#}", {"w": "shared"}),
    ],
)
def test_a_write_of_a_part_writes_what_it_takes(part: str, where: dict[str, str]) -> None:
    text = "x# = ReadVariableOp(own#) [4] @d#\n"
    text += f"put# = ResourceStridedSliceAssign(w#, size, size, size, {part} @d#\n"
    assert found(text) == where


def test_what_one_variable_holds_for_both_changes_as_they_write_it() -> None:
    refs = {"count": VariableRef("count", 0, 1, (), 1, False, "")}
    text = "add0 = AssignAddVariableOp(count, one)\nr0 = ReadVariableOp(count) [4] ^add0\n"
    text += "add1 = AssignAddVariableOp(count, one) ^r0\nr1 = ReadVariableOp(count) [4] ^add1\n"

    def apart(of_second: str) -> dict[str, str]:
        step = f"put0 = AssignVariableOp(w0, r0)\nput1 = AssignVariableOp(w1, {of_second})\n"
        made = "one = Const() {value=1}\n" + text + step
        made_of = view_of(made, replicas=2, variables=SHAPES, refs=refs)
        return written_with_own_values(made_of, {"w"})

    assert apart("r0") == {}
    assert apart("r1") == {"w": "r0"}


def test_a_variable_that_is_read_before_and_after_a_write_was_read_twice() -> None:
    text = "old# = ReadVariableOp(w#) [4]\nadd# = AssignAddVariableOp(w#, shared) ^old#\n"
    text += "new# = ReadVariableOp(w#) [4] ^add#\nput0 = AssignVariableOp(m0, new0)\n"
    assert found(text + "put1 = AssignVariableOp(m1, new1)\n", "m") == {}
    assert found(text + "put1 = AssignVariableOp(m1, new0)\n", "m") == {}
    assert found(text + "put1 = AssignVariableOp(m1, old1)\n", "m") == {"m": "new0"}


def test_of_a_function_that_runs_once_a_copy_that_it_does_not_write_stays() -> None:
    one = view("put0 = AssignVariableOp(w0, shared) @d0\n")
    one = one.with_variables({"w0": one.variables["w0"]})
    assert written_with_own_values(one, {"w"}) == {}
    assert written_with_own_values(one, {"w"}, called_once=True) == {"w": "shared"}
    both = view("put# = AssignVariableOp(w#, shared) @d#\n")
    assert written_with_own_values(both, {"w"}, called_once=True) == {}


def test_the_same_in_another_order_comes_to_something_else() -> None:
    put, add = "AssignVariableOp(w#, shared)", "AssignAddVariableOp(w#, size)"
    assert found(f"a# = {put}\nb# = {add} ^a#\n") == {}
    one, other = (
        f"a{r} = {first}\nb{r} = {then} ^a{r}\n".replace("#", str(r))
        for r, (first, then) in enumerate([(put, add), (add, put)])
    )
    assert found(one + other).keys() == {"w"}


@pytest.mark.parametrize(
    ("summed", "where"),
    [
        ("CollectiveReduceV2(x#, size, size) {merge_op=Add final_op=Id}", None),
        ("CollectiveReduceV2(x#, one, one) {merge_op=Add final_op=Id}", "x0"),
        ("CollectiveGatherV2(x#, one, one)", "x0"),
        ("CollectiveReduceScatterV2(shared, size, size) {merge_op=Add final_op=Id}", "s0"),
    ],
)
def test_what_not_all_replicas_get_is_not_everybodys(summed: str, where: str | None) -> None:
    text = f"one = Const() {{value=1}}\nx# = Placeholder() [4] @d#\ns# = {summed} [4] @d#\n"
    text += "put# = AssignSubVariableOp(w#, s#) @d#\n"
    assert found(text) == ({} if where is None else {"w": where})


@pytest.mark.parametrize(("groups", "where"), [("1x4", None), ("2x2", "x")])
def test_a_sum_over_groups_of_a_tpu_is_each_groups_own(groups: str, where: str | None) -> None:
    text = f"groups = Const() {{value={groups}}}\na = Placeholder() [4]\nb = Placeholder() [4]\n"
    text += "x = TPUReplicatedInput(a, b) [4]\ns = CrossReplicaSum(x, groups) [4]\n"
    of_one_program = view(text + "put# = AssignSubVariableOp(w#, s) @d#\n", replicas=1)
    found_of_it = written_with_own_values(of_one_program, {"w"})
    assert found_of_it == ({} if where is None else {"w": where})


def test_a_copy_that_is_written_more_often_moves_apart() -> None:
    once = "put# = AssignSubVariableOp(w#, shared)\n"
    assert found(once + "more = AssignSubVariableOp(w0, shared) ^put0\n").keys() == {"w"}
    assert found(once + "more# = AssignSubVariableOp(w#, shared) ^put#\n") == {}


def test_what_another_variable_holds_is_no_copy_of_what_is_written() -> None:
    text = "r# = ReadVariableOp(m#) [4]\nd = Neg(r0)\nput0 = AssignVariableOp(w0, d)\n"
    assert found(text + "put1 = AssignVariableOp(w1, r1)\n") == {"w": "d"}
    own = "h = ReadVariableOp(w0) [4] ^put0\nput1 = AssignVariableOp(w1, h)\n"
    assert found(text + own) == {}


def test_what_is_summed_for_one_variable_may_move_another_apart() -> None:
    text = "x# = Placeholder() [4] @d#\nmean = AddN(x0, x1) [4] @d0\n"
    text += "put# = AssignVariableOp(m#, mean) @d#\nstep# = AssignSubVariableOp(w#, x#) @d#\n"
    assert found(text, "w", "m") == {"w": "x0"}


@pytest.mark.parametrize("between", ["", "more# = AssignAddVariableOp(m#, shared) @d# ^put#\n"])
def test_what_a_later_write_has_replaced_is_not_read(between: str) -> None:
    # A buffer takes a replica's gradient, and then the sum of all; or what it holds is added to.
    text = "x# = Placeholder() [4] @d#\nput# = AssignVariableOp(m#, x#) @d#\n" + between
    over = "over# = AssignVariableOp(m#, shared) @d# ^put#\n"
    read = "now# = ReadVariableOp(m#) [4] @d#\nstep# = AssignSubVariableOp(w#, now#) @d#\n"
    assert found(text + over + read.replace("@d#", "@d# ^over#", 1)) == {}
    assert found(text + read.replace("@d#", "@d# ^put#", 1)) == {"w": "x0"}


def test_whether_an_input_is_a_replicas_own_others_may_say() -> None:
    handed = view("x# = Placeholder() [4] @d#\nput# = AssignVariableOp(w#, x#) @d#\n")
    assert written_with_own_values(handed, {"w"}).keys() == {"w"}
    assert written_with_own_values(handed, {"w"}, lambda inputs, copies: {}) == {}
    assert written_with_own_values(handed, {"w"}, lambda inputs, copies: {"x1": Input(0)}) == {
        "w": "x1"
    }
    same = written_with_own_values(
        handed, {"w"}, lambda inputs, copies: dict.fromkeys(inputs, Input(0))
    )
    assert same == {}
    drawn = view("x# = RandomUniform(size) [4] @d#\nput# = AssignVariableOp(w#, x#) @d#\n")
    found_of_drawn = written_with_own_values(drawn, {"w"}, lambda inputs, copies: {})
    assert found_of_drawn.keys() == {"w"}


def test_where_a_function_has_no_variable_of_the_strategy_none_is_written_so() -> None:
    assert written_with_own_values(view_of("shared = Placeholder() [4]\n"), {"w"}) == {}


def test_of_several_variables_those_are_named_that_are_written_so() -> None:
    text = "x# = Placeholder() [4] @d#\nput# = AssignVariableOp(w#, shared) @d#\n"
    text += "more# = AssignVariableOp(m#, x#) @d#\n"
    assert found(text, "w", "m") == {"m": "x0"}
    assert found(text, "w") == {}


def test_what_a_variable_was_given_is_read_again() -> None:
    text = """
    x# = Placeholder() [4] @d#
    early# = ReadVariableOp(m#) [4] @d#
    put# = AssignAddVariableOp(m#, x#) @d# ^early#
    late# = ReadVariableOp(m#) [4] @d# ^put#
    """
    assert found(text + "step# = AssignSubVariableOp(w#, late#) @d#\n") == {"w": "x0"}
    assert found(text + "step# = AssignSubVariableOp(w#, early#) @d#\n") == {}


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("x = RandomUniform(size) [4] @d0\n", "x"),
        ("it = Placeholder() []\nx = IteratorGetNext(it) [4] @d0\n", "x"),
        # Nobody knows whether the others were handed the same: it may be a batch, or a rate.
        ("x = Placeholder() [4]\n", "x"),
        ("x = Placeholder() [?]\n", "x"),
        ("x = Placeholder() []\n", None),
    ],
    ids=("random number", "element", "batch", "of unknown rank", "number"),
)
@pytest.mark.parametrize("here", [1, 2])
def test_what_all_copies_here_take_may_be_something_else_in_other_processes(
    text: str, where: str | None, here: int
) -> None:
    text += "put# = AssignVariableOp(w#, x) @d#\n"
    of_workers = view(text, here, elsewhere=2)
    assert written_with_own_values(of_workers, {"w"}) == ({} if where is None else {"w": where})


def test_in_one_program_an_input_of_each_replica_is_told_from_one_of_all() -> None:
    text = "a = Placeholder() [4]\nb = Placeholder() [4]\n"
    text += "{} = TPUReplicatedInput({}) [4]\nput# = AssignVariableOp(w#, x) @d#\n"
    of_each = view(text.format("x", "a, b"), replicas=1)
    assert written_with_own_values(of_each, {"w"}) == {"w": "x"}
    of_all = view(text.format("x", "a, a"), replicas=1)
    assert written_with_own_values(of_all, {"w"}) == {}
