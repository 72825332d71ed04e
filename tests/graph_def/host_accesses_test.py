"""The host uses a variable in shards as if it were whole, under the names that its ops had."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tf_wu_shard.graph_def.host_accesses import (
    HostAccesses,
    Shards,
    must_stay_whole,
    uses_by_variable,
)
from tf_wu_shard.graph_def.program import Program
from tf_wu_shard.layout import TileLayout

v1 = tf.compat.v1

FLOAT = tf.float32.as_datatype_enum

# Two runs of 8 rows, the last 4 of the second padding; replica 0 holds the second.
LAYOUT = TileLayout((12, 5), (0, 1), 2, 8, (1, 0))

WHOLE = np.arange(60, dtype=np.float32).reshape(12, 5)


def host_graph(shared_name: str | None = None) -> Any:
    """A GraphDef in which the host initialises a variable, asks for it, assigns and reads it."""
    with tf.Graph().as_default() as graph:
        handle = tf.raw_ops.VarHandleOp(
            dtype=tf.float32, shape=[12, 5], shared_name=shared_name or "w", name="w"
        )
        given = v1.placeholder(tf.float32, name="given")
        write = tf.raw_ops.AssignVariableOp(resource=handle, value=given, name="restore")
        with tf.control_dependencies([write]):
            tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32, name="save")
        tf.raw_ops.VarIsInitializedOp(resource=handle, name="is_there")
    return graph.as_graph_def()


def uses(graph_def: Any, inside: tuple[str, ...] = ()) -> dict[str, list[Any]]:
    nodes = tuple(node for node in graph_def.node if node.name in inside)
    return uses_by_variable(graph_def, Program("cluster", 2, None, nodes, None))


def led() -> tuple[Any, tuple[str, ...], str]:
    """The GraphDef, every use of the variable redirected to its shards.

    Returns:
        It, the names of the shards' handles, and the name of one more read of the whole.
    """
    graph_def = host_graph()
    accesses = HostAccesses(node.name for node in graph_def.node)
    handles = tuple(accesses.unique(f"w/shard_{number}") for number in range(2))
    shards = Shards("w", FLOAT, LAYOUT, handles, ("/device:CPU:0", "/device:CPU:0"))
    template = next(node for node in graph_def.node if node.name == "w")
    accesses.make_handles(shards, template)
    for user in uses(graph_def)["w"]:
        accesses.lead(shards, user)
    again = accesses.add_read(shards)
    kept = [node for node in graph_def.node if node.name not in accesses.replaced]
    new = v1.GraphDef(node=[*kept, *accesses.nodes], versions=graph_def.versions)
    return new, handles, again


def test_what_is_restored_is_cut_and_what_is_saved_is_whole() -> None:
    graph_def, handles, again = led()
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        tf.graph_util.import_graph_def(graph_def, name="")
        # Every name that programs fetch is there still, but for the handle itself.
        assert not session.run("is_there:0")
        session.run("restore", {"given:0": WHOLE})
        assert session.run("is_there:0")
        saved, read = session.run(["save:0", f"{again}:0"], {"given:0": WHOLE})
        np.testing.assert_array_equal(saved, WHOLE)
        np.testing.assert_array_equal(read, WHOLE)
        first, second = (
            session.run(
                tf.raw_ops.ReadVariableOp(
                    resource=graph.get_tensor_by_name(f"{name}:0"), dtype=tf.float32
                )
            )
            for name in handles
        )
    np.testing.assert_array_equal(second, WHOLE[:8])
    np.testing.assert_array_equal(first[:4], WHOLE[8:])
    assert first.shape == (8, 5) and "w" not in {node.name for node in graph_def.node}


def test_a_value_of_another_shape_is_an_error_when_it_is_written() -> None:
    graph_def, _, _ = led()
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        tf.graph_util.import_graph_def(graph_def, name="")
        with pytest.raises(tf.errors.InvalidArgumentError):
            session.run("restore", {"given:0": WHOLE[:8]})


def test_uses_are_those_outside_of_the_program() -> None:
    graph_def = host_graph()
    assert [n.name for n in uses(graph_def)["w"]] == ["restore", "save", "is_there"]
    assert [n.name for n in uses(graph_def, ("save",))["w"]] == ["restore", "is_there"]
    assert must_stay_whole(graph_def, uses(graph_def)) == {}


def test_a_variable_that_the_host_uses_otherwise_stays_whole() -> None:
    graph_def = host_graph()
    handed_on = graph_def.node.add(name="passed", op="Identity", input=["w"])
    refusal = must_stay_whole(graph_def, uses(graph_def))["w"]
    assert "passed" in refusal.reason and handed_on.op in refusal.reason


@pytest.mark.parametrize(
    ("shared_name", "said"),
    [("", "other"), ("cd2c89b7-88b7-44c8-ad83-06c2a9158347", "")],
    ids=("one variable under two names", "another variable in every run"),
)
def test_a_variable_that_is_not_one_stays_whole(shared_name: str, said: str) -> None:
    graph_def = host_graph(shared_name or None)
    other = graph_def.node.add(name="other", op="VarHandleOp")
    other.attr["shared_name"].s = b"w"
    found = must_stay_whole(graph_def, {})
    assert said in found["w"].reason and (found.keys() == {"w", "other"}) == bool(said)
