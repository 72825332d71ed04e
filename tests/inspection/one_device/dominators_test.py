"""The last value on every way from what a replica has of its own is found."""

from __future__ import annotations

from tests.graph.text_graph import view_of
from tf_wu_shard.graph.op import Value
from tf_wu_shard.inspection.one_device.dominators import Dominators


def dominators(text: str, own: tuple[str, ...] = ("x",), **keywords: object) -> Dominators:
    view = view_of(text, replicas=1, variables={"w": (4,), "m": (4,)}).with_inputs(list(own), {})
    return Dominators(view, **keywords)  # type: ignore[arg-type]


def nearest(found: Dominators, *names: str) -> str:
    """The op of the nearest value that lies before some values; "" where there is none."""
    numbers = [n for name in names if (n := found.of(Value(name))) is not None]
    value = found.value(found.common(numbers))
    return "" if value is None else value.op


FORK = """
x = Placeholder() [4]
loss = Square(x) [4]
g = Neg(loss) [4]
left = Mul(g, g) [4]
right = Add(g, left) [4]
"""


def test_where_ways_part_and_meet_again_the_value_before_is_the_nearest() -> None:
    found = dominators(FORK)
    assert nearest(found, "left", "right") == "g"
    assert nearest(found, "right") == "right"


def test_two_inputs_have_nothing_in_common() -> None:
    found = dominators(FORK + "y = Placeholder() [4]\nz = Neg(y) [4]", ("x", "y"))
    assert nearest(found, "left", "z") == ""


def test_what_depends_on_no_input_is_the_same_on_all_replicas() -> None:
    found = dominators(FORK + "c = Const() {value=1} []\nd = Neg(c) []")
    assert found.of(Value("c")) is None and found.of(Value("d")) is None
    assert found.of(Value("g")) is not None


def test_random_numbers_are_each_replicas_own_and_what_is_said_to_be_shared_is_not() -> None:
    text = "r = RandomUniform() [4]\ns = Neg(r) [4]"
    assert dominators(text, ()).of(Value("s")) is not None
    assert dominators(text, (), shared=frozenset({Value("r")})).of(Value("s")) is None


def test_what_is_written_to_a_variable_comes_out_of_its_reads() -> None:
    text = (
        FORK
        + """
    before = ReadVariableOp(m0) [4]
    put = AssignAddVariableOp(m0, g)
    after = ReadVariableOp(m0) [4] ^put
    moved = Neg(after) [4]
    """
    )
    found = dominators(text)
    assert found.held == {"m"} and [op.name for op in found.writes["m"]] == ["put"]
    assert found.of(Value("before")) is None
    assert nearest(found, "moved", "left") == "g"


def test_a_long_way_back_is_short_to_walk() -> None:
    chain = "\n".join(f"n{i} = Neg(n{i - 1}) [4]" for i in range(1, 3000))
    found = dominators("n0 = Placeholder() [4]\n" + chain, ("n0",))
    number = found.of(Value("n2999"))
    assert number is not None
    asked: list[str] = []

    def holds(name: str) -> bool:
        asked.append(name)
        return int(name[1:]) > 7

    value = found.value(found.before(number, holds))
    assert value is not None and value.op == "n7"
    assert len(asked) < 200
