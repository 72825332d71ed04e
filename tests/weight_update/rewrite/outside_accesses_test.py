"""Accesses of what is in shards go in rounds: reads, then the writes that all copies do alike."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from tests.graph.text_graph import view_of
from tf_wu_shard.errors import StorageError
from tf_wu_shard.graph.op import Op
from tf_wu_shard.layout import flat_layout
from tf_wu_shard.weight_update.rewrite.outside_accesses import InShards, outside_accesses

LAYOUTS = {"m": flat_layout((6,), 2, 4)}
IGNORES = ("a", "c = Const()", "c")
READS = ("a", "r = ReadVariableOp(a)", "r:value:0")


def found(text: str, held: InShards, *controls: str, **more: Any) -> list[tuple[str, list[str]]]:
    """Each access by its op's name, with what it comes after."""
    view = view_of(text, variables={"m": (6,)}, controls=controls, **more)
    return [(access.op.name, [*access.after]) for access in outside_accesses(view, held)]


def test_a_read_waits_for_the_writes_of_all_copies_and_a_write_for_the_reads_of_all() -> None:
    text = """
    old# = ReadVariableOp(m#) [6] @d#
    put# = AssignAddVariableOp(m#, old#) @d# ^old#
    new# = ReadVariableOp(m#) [6] @d# ^put#
    """
    held = InShards(LAYOUTS, copies={"m": 2})
    writes, reads = ["put0", "put1"], ["old0", "old1"]
    assert found(text, held, *writes, "new0", "new1") == [
        *((name, []) for name in reads),
        *((name, reads) for name in writes),
        *((f"new{copy}", writes) for copy in (0, 1)),
    ]


def test_copies_that_do_not_write_alike_are_an_error() -> None:
    held = InShards(LAYOUTS, copies={"m": 2})
    with pytest.raises(StorageError, match="writes only some replicas' components"):
        found("put = AssignVariableOp(m1, g)\ng = Const() [6]", held, "put")


def test_an_op_that_is_neither_a_read_nor_a_write_is_an_error() -> None:
    text = "look = ResourceGather(m0, n) [2]\nn = Const() [2]"
    with pytest.raises(StorageError, match=r"'look' \(ResourceGather\) uses variable 'm'"):
        found(text, InShards(LAYOUTS), "look")


def test_a_function_that_does_something_with_the_handle_is_an_error() -> None:
    call = "call = StatefulPartitionedCall(m0) {f=&inner} [6]"
    with pytest.raises(StorageError, match="hands variable 'm', which lives in shards, to a func"):
        found(call, InShards(LAYOUTS), "call", functions={"inner": READS})


def test_a_function_that_ignores_the_handle_has_none() -> None:
    call = "call = StatefulPartitionedCall(m0) {f=&inner} [6]"
    assert found(call, InShards(LAYOUTS), "call", functions={"inner": IGNORES}) == []


def test_a_call_on_the_shards_takes_its_turn_among_the_accesses() -> None:
    text = """
    shard = Placeholder() {T=20}
    old = ReadVariableOp(m0) [6]
    call = StatefulPartitionedCall(shard) {f=&writes} [6]
    new = ReadVariableOp(m0) [6]
    """
    writes = ("a", "w = AssignVariableOp(a, a)", "w")
    held = InShards(LAYOUTS, callees={"shard": "m"})
    got = found(text, held, "old", "call", "new", functions={"writes": writes})
    assert got == [("old", []), ("call", ["old"]), ("new", ["call"])]


def test_what_was_written_out_of_a_call_on_the_shards_is_ordered_and_stays_as_it_is() -> None:
    text = """
    shard = Placeholder() {T=20}
    g = Const() [3]
    old = ReadVariableOp(m0) [6]
    put = AssignVariableOp(shard, g)
    new = ReadVariableOp(m0) [6]
    """
    view = view_of(text, variables={"m": (6,)}, controls=("old", "put", "new"))
    own = outside_accesses(view, InShards(LAYOUTS, callees={"shard": "m"}))
    assert [(one.op.name, one.after) for one in own] == [
        ("old", ()),
        ("put", ("old",)),
        ("new", ("put",)),
    ]
    assert [(one.is_read, one.is_write) for one in own] == [
        (True, False),
        (False, False),
        (True, False),
    ]


def _of_copy(copy: int, op: Op, key: str) -> list[int]:
    return [copy]


def test_a_call_of_one_copy_takes_its_turn_among_the_accesses_of_that_copy() -> None:
    """Of the other copy all reads and the write come later in the trace."""
    text = """
    shard = Placeholder() {T=20}
    old0 = ReadVariableOp(m0) [6] @d0
    put0 = AssignAddVariableOp(m0, old0) @d0 ^old0
    call = StatefulPartitionedCall(shard) {f=&reads} [6]
    old1 = ReadVariableOp(m1) [6] @d1
    put1 = AssignAddVariableOp(m1, old1) @d1 ^old1
    """
    writes = ["put0", "put1"]
    order = ("shard", "old0", "put0", "call", "old1", "put1")
    expected: list[tuple[int, list[str]]] = [(0, writes), (1, [])]
    for copy, after in expected:
        held = InShards(
            LAYOUTS,
            copies={"m": 2},
            callees={"shard": "m"},
            turn=lambda op: (order.index(op.name),),
            accessed=functools.partial(_of_copy, copy),
        )
        got = dict(found(text, held, *writes, "call", functions={"reads": READS}))
        assert got["call"] == after
        reads = {"old0", "old1"} | ({"call"} if copy == 1 else set())
        assert all(set(got[write]) == reads for write in writes)


@pytest.mark.parametrize(("second", "expected"), [("packed", 2), ("shard", 0)])
def test_calls_alone_are_put_in_order_where_they_share_no_handle(
    second: str, expected: int
) -> None:
    text = f"""
    shard = Placeholder() {{T=20}}
    packed = Placeholder() {{T=20}}
    one = StatefulPartitionedCall(shard) {{f=&writes}} [6]
    two = StatefulPartitionedCall({second}) {{f=&writes}} [6]
    """
    writes = ("a", "w = AssignVariableOp(a, a)", "w")
    held = InShards(LAYOUTS, callees={"shard": "m", "packed": "m"})
    got = found(text, held, "one", "two", functions={"writes": writes})
    assert got == [("one", []), ("two", ["one"])][:expected]


def test_a_hosts_component_can_only_be_read() -> None:
    held = InShards(LAYOUTS, host={"m0": "m"}, components=frozenset({"m0"}))
    assert found("old = ReadVariableOp(m0) [6]", held, "old") == [("old", [])]
    with pytest.raises(StorageError, match="writes one replica's component of variable 'm'"):
        found("put = AssignVariableOp(m0, g)\ng = Const() [6]", held, "put")


def test_dead_accesses_are_none() -> None:
    assert found("old = ReadVariableOp(m0) [6]", InShards(LAYOUTS)) == []
