"""What touches one variable is ordered by edges, directly or by way of others, or it is a race."""

from __future__ import annotations

from types import SimpleNamespace

from tf_wu_shard.weight_update.rewrite.races import races

READ = ("read", "ReadVariableOp", "handle")
WRITE = "AssignVariableOp"


def found(*nodes: tuple[str, ...]) -> list[tuple[str, str, str]]:
    """The races in a graph; each op has a name, a type and inputs."""
    placeholder = ("handle", "Placeholder")
    made = [SimpleNamespace(name=n, op=t, input=i) for n, t, *i in (placeholder, *nodes)]
    return [*races(made, ["handle"])]


def test_a_write_beside_a_read_is_a_race_and_a_second_read_is_none() -> None:
    write = ("write", WRITE, "handle", "read")
    assert found(READ, write) == []
    assert found(READ, ("again", *READ[1:])) == []
    assert found(READ, ("again", *READ[1:]), write) == [("handle", "again", "write")]
    assert found(("write", WRITE, "handle", "value"), READ, ("value", "Const")) == [
        ("handle", "write", "read")
    ]


def test_an_edge_by_way_of_others_orders_and_so_does_one_to_an_op_listed_later() -> None:
    far = ("sum", "AddV2", "twice:1", "twice"), ("twice", "Split", "read")
    assert found(READ, *far, ("write", WRITE, "handle", "sum")) == []
    assert found(("write", WRITE, "handle", "value", "^done"), READ, *CONSTANT, DONE) == []


def test_writes_one_after_the_other_need_no_edge_from_the_first_to_the_last() -> None:
    first = ("first", WRITE, "handle", "value")
    second = ("second", "AssignAddVariableOp", "handle", "value", "^first")
    late = ("late", *READ[1:], "^second")
    assert found(*CONSTANT, first, second, late) == []
    assert found(*CONSTANT, first, second, ("late", *READ[1:], "^first")) == [
        ("handle", "second", "late")
    ]


def test_what_is_known_to_do_no_more_than_read_races_with_no_read() -> None:
    assert found(*CONSTANT, READ, ("rows", "ResourceGather", "handle", "value")) == []
    branch = ("branch", "If", "value", "handle")
    assert found(*CONSTANT, READ, branch) == [("handle", "read", "branch")]


CONSTANT = (("value", "Const"),)
DONE = ("done", "NoOp", "^read")
