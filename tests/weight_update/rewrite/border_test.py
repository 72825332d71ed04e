"""Accesses of a variable in shards are redirected to the shards, in order, or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tests.graph.tracing import captured_step, weight_and_slot
from tf_wu_shard.errors import StorageError
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.in_process.collectives import InProcess
from tf_wu_shard.layout import flat_layout
from tf_wu_shard.program.functionalize import functionalized
from tf_wu_shard.program.fused_values import on_scratch
from tf_wu_shard.replicas import in_this_process
from tf_wu_shard.step.capture import Captured, capture
from tf_wu_shard.tensorflow_private import function_graph
from tf_wu_shard.weight_update.rewrite.border import Redirected, redirected
from tf_wu_shard.weight_update.rewrite.outside_accesses import InShards

Strategies = Callable[[int], tf.distribute.MirroredStrategy]
LAYOUT = flat_layout((5, 7), 2, 4)


def with_shards(step: Captured) -> Redirected | None:
    dialect = InProcess(
        in_this_process(f"/device:CPU:{replica}" for replica in range(LAYOUT.num_shards))
    )
    held = InShards({"momentum": LAYOUT}, copies={"momentum": LAYOUT.num_shards})
    return redirected(step.view, held, lambda key, program: dialect)


def view_of(result: Redirected | None) -> GraphView:
    """The new graph; building the view proves that it holds together."""
    assert result is not None
    return GraphView(
        tf.compat.v1.GraphDef(node=result.nodes),
        variables={},
        outputs=result.outputs,
        control_outputs=result.control_outputs,
        op_def=function_graph.op_def,
    )


def ops_of(view: GraphView, op_type: str, name: str = "") -> list[str]:
    return [op.name for op in view if op.type == op_type and name in op.name]


def on_slot(step: Captured, view: GraphView) -> list[str]:
    """Ops that still take a handle of the whole slot."""
    handles = {h for h, ref in step.view.variables.items() if ref.key == "momentum"}
    assert handles
    return [op.name for op in view if any(v.op in handles for v in op.inputs)]


def test_a_graph_that_touches_no_sharded_slot_is_left(strategy_of: Strategies) -> None:
    strategy = strategy_of(2)
    weight, _ = weight_and_slot(strategy)
    assert with_shards(captured_step(strategy, lambda _: weight * 2.0)) is None


def test_a_read_becomes_a_gather_of_all_shards(strategy_of: Strategies) -> None:
    strategy = strategy_of(2)
    _, slot = weight_and_slot(strategy)
    step = captured_step(strategy, lambda _: slot * 2.0)
    result = with_shards(step)
    view = view_of(result)
    assert result is not None
    assert [(i.slot, i.replica) for i in result.shard_inputs] == [("momentum", 0), ("momentum", 1)]
    # Two replicas read it, each gathers both shards.
    assert len(ops_of(view, "ReadVariableOp", "read/shard")) == 4
    assert on_slot(step, view) == []


def test_each_replica_writes_its_own_shard(strategy_of: Strategies) -> None:
    strategy = strategy_of(2)
    _, slot = weight_and_slot(strategy)

    def write(component: tf.Variable) -> None:
        component.assign_add(component * 0.5)

    train = tf.function(lambda: strategy.extended.update(slot, write, group=False), autograph=False)
    step = capture(train.get_concrete_function().graph)
    result = with_shards(step)
    view = view_of(result)
    assert result is not None
    writes = [op for op in view if op.type == "AssignAddVariableOp"]
    assert [op.inputs[0].op for op in writes] == [i.placeholder for i in result.shard_inputs]
    assert on_slot(step, view) == []
    # A replica's shard is also read by the other: every read stands before every write.
    reads = [view.ops[n] for n in ops_of(view, "ReadVariableOp", "read/shard")]
    assert reads
    assert all(view.first_unordered(reads, write) is None for write in writes)


def test_a_write_of_one_component_alone_is_an_error(strategy_of: Strategies) -> None:
    strategy = strategy_of(2)
    _, slot = weight_and_slot(strategy)
    step = tf.function(lambda: slot.values[1].assign(tf.ones((5, 7))), autograph=False)
    captured = capture(step.get_concrete_function().graph)
    with pytest.raises(StorageError, match="writes only some replicas' components"):
        with_shards(captured)


def _scatter(handles: list[Any]) -> Any:
    @tf.function(autograph=False)
    def step() -> None:
        for handle in handles:
            tf.raw_ops.ResourceScatterAdd(resource=handle, indices=[0], updates=tf.ones((1, 7)))

    graph = step.get_concrete_function().graph
    captured = capture(graph)
    return functionalized(graph, captured, captured.view.variables, on_scratch)


def test_a_scatter_works_on_the_gathered_value_and_writes_the_shard(
    strategy_of: Strategies,
) -> None:
    _, slot = weight_and_slot(strategy_of(2))
    result = with_shards(_scatter([component.handle for component in slot.values]))
    assert result is not None
    nodes = {node.name: node for node in result.nodes}
    scatters = [node for node in nodes.values() if node.op == "ResourceScatterAdd"]
    assert len(scatters) == 2
    assert all(nodes[node.input[0]].op == "VarHandleOp" for node in scatters)
    shards = {added.placeholder for added in result.shard_inputs}
    must_run = [nodes[name] for name in result.control_outputs]
    written = [n.input[0] for n in must_run if n.op == "AssignVariableOp"]
    assert set(written) == shards


def test_no_replica_writes_its_shard_before_all_have_gathered(strategy_of: Strategies) -> None:
    """Else one would scatter into what the other has scattered into already."""
    _, slot = weight_and_slot(strategy_of(2))
    view = view_of(with_shards(_scatter([component.handle for component in slot.values])))
    gathers = [view.ops[name] for name in ops_of(view, "ReadVariableOp", "read/shard")]
    writes = [view.ops[name] for name in ops_of(view, "AssignVariableOp", "wu_shard_write")]
    assert (len(gathers), len(writes)) == (4, 2)
    assert [view.first_unordered(gathers, write) for write in writes] == [None, None]


def test_a_scatter_on_one_component_alone_is_an_error(strategy_of: Strategies) -> None:
    _, slot = weight_and_slot(strategy_of(2))
    with pytest.raises(StorageError, match="writes only some replicas' components"):
        with_shards(_scatter([slot.values[0].handle]))


def test_the_old_graph_is_left_as_it_was(strategy_of: Strategies) -> None:
    strategy = strategy_of(2)
    _, slot = weight_and_slot(strategy)
    step = captured_step(strategy, lambda _: slot * 2.0)
    before = step.view.graph_def.SerializeToString(deterministic=True)
    assert with_shards(step) is not None
    assert step.view.graph_def.SerializeToString(deterministic=True) == before
