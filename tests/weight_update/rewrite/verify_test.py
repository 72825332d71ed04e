"""Each promise of a rewrite, when broken, is found out before anything uses the graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tests.graph.tracing import momentum_step, traced, weight_and_slot
from tests.weight_update.rewrite.stages import Stages, run_stages
from tf_wu_shard.errors import WuShardError
from tf_wu_shard.graph.op import Value
from tf_wu_shard.grounds.in_process.collectives import InProcess
from tf_wu_shard.replicas import in_this_process
from tf_wu_shard.weight_update.rewrite.result import RewriteResult
from tf_wu_shard.weight_update.rewrite.rewriter import rewrite
from tf_wu_shard.weight_update.rewrite.verify import verify

Strategies = Callable[[int], tf.distribute.MirroredStrategy]


@pytest.fixture(scope="module")
def stages(strategy_of: Strategies) -> Stages:
    strategy = strategy_of(2)
    return run_stages(traced(strategy, momentum_step(*weight_and_slot(strategy))))


def broken(stages: Stages, change: Callable[[Any], None]) -> RewriteResult:
    """The result with its nodes changed."""
    graph_def = tf.compat.v1.GraphDef()
    graph_def.CopyFrom(stages.result.graph_def)
    change(graph_def)
    return dataclasses.replace(stages.result, nodes=tuple(graph_def.node))


def check(stages: Stages, result: RewriteResult) -> None:
    verify(stages.view, stages.plan, result)


def nodes_of(graph_def: Any, *op_types: str) -> list[Any]:
    return [n for n in graph_def.node if n.op in op_types]


def removed(graph_def: Any, name: str) -> None:
    kept = [n for n in graph_def.node if n.name != name]
    copies = [tf.compat.v1.NodeDef.FromString(n.SerializeToString()) for n in kept]
    for node in copies:
        inputs = [i for i in node.input if i != f"^{name}"]
        del node.input[:]
        node.input.extend(inputs)
    del graph_def.node[:]
    graph_def.node.extend(copies)


def test_a_sound_rewrite_passes(stages: Stages) -> None:
    check(stages, stages.result)
    assert nodes_of(stages.result.graph_def, "CollectiveReduceV2") == []


def test_a_weight_that_is_no_longer_written_is_caught(stages: Stages) -> None:
    name = stages.result.assigns["weight"][1][0]
    result = broken(stages, lambda g: removed(g, name))
    controls = tuple(c for c in result.control_outputs if c != name)
    with pytest.raises(WuShardError, match="weight weight is written by None"):
        check(stages, dataclasses.replace(result, control_outputs=controls))


def test_a_weight_that_is_written_twice_is_caught(stages: Stages) -> None:
    def again(graph_def: Any) -> None:
        (first, *_) = (n for n in graph_def.node if n.name == stages.result.assigns["weight"][0][0])
        graph_def.node.add().CopyFrom(first)
        graph_def.node[-1].name = "again"

    with pytest.raises(WuShardError, match=r"weight weight is written by .*again"):
        check(stages, broken(stages, again))


def test_a_slot_that_is_still_written_whole_is_caught(stages: Stages) -> None:
    def kept(graph_def: Any) -> None:
        old = next(
            op
            for op in stages.view
            if op.type == "AssignAddVariableOp" and not op.name[-1].isdigit()
        )
        node = graph_def.node.add()
        node.CopyFrom(old.node)
        # The write of the shard has its name.
        node.name = "kept"
        handle = old.inputs[0]
        del node.input[:]
        node.input.extend([str(handle), nodes_of(graph_def, "Slice")[0].name])

    with pytest.raises(WuShardError, match="slot momentum is still written whole"):
        check(stages, broken(stages, kept))


def test_a_shard_that_is_not_written_as_often_as_its_slot_is_caught(stages: Stages) -> None:
    def unwritten(graph_def: Any) -> None:
        removed(graph_def, nodes_of(graph_def, "AssignAddVariableOp")[0].name)

    result = broken(stages, unwritten)
    names = {n.name for n in result.graph_def.node}
    controls = tuple(c for c in result.control_outputs if c in names)
    with pytest.raises(WuShardError, match="of momentum is not written 1 times"):
        check(stages, dataclasses.replace(result, control_outputs=controls))


def test_a_write_that_does_not_wait_for_a_read_of_its_shard_is_caught(stages: Stages) -> None:
    def read_again(graph_def: Any) -> None:
        write = nodes_of(graph_def, "AssignAddVariableOp")[0]
        read = graph_def.node.add(name="again", op="ReadVariableOp", input=[write.input[0]])
        read.attr["dtype"].type = tf.float32.as_datatype_enum

    with pytest.raises(WuShardError, match="and again, which touch momentum"):
        check(stages, broken(stages, read_again))


def test_a_gradient_that_is_still_reduced_whole_is_caught(stages: Stages) -> None:
    def reduced(graph_def: Any) -> None:
        carrier = stages.analysis.reductions[0].carriers[0]
        graph_def.node.add().CopyFrom(tf.compat.v1.NodeDef(name=carrier, op="NoOp"))

    with pytest.raises(WuShardError, match="weight is still reduced whole by"):
        check(stages, broken(stages, reduced))


def test_another_variables_lost_write_is_caught(strategy_of: Strategies) -> None:
    strategy = strategy_of(2)
    weight, slot = weight_and_slot(strategy)
    with strategy.scope():
        counter = tf.Variable(
            0,
            dtype=tf.int64,
            trainable=False,
            name="counter",
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )
    train = momentum_step(weight, slot)

    def counted(number: tf.Tensor) -> tf.Tensor:
        counter.assign_add(1)
        return train(number)

    stages = run_stages(traced(strategy, counted))
    check(stages, stages.result)
    handles = {h for h, r in stages.view.variables.items() if r.key == "counter"}
    writes = [op for op in stages.view if op.type == "AssignAddVariableOp"]
    write = next(op.name for op in writes if op.inputs[0].op in handles)
    result = broken(stages, lambda g: removed(g, write))
    controls = tuple(c for c in result.control_outputs if c != write)
    with pytest.raises(WuShardError, match="counter was written by"):
        check(stages, dataclasses.replace(result, control_outputs=controls))


def test_a_lost_output_is_caught(stages: Stages) -> None:
    short = dataclasses.replace(stages.result, outputs=stages.result.outputs[1:])
    with pytest.raises(WuShardError, match="2 outputs became 1"):
        check(stages, short)


def test_an_edge_from_nowhere_is_caught(stages: Stages) -> None:
    def dangling(graph_def: Any) -> None:
        graph_def.node[-1].input.append("^nothing")

    with pytest.raises(WuShardError, match="reads nothing, which is gone"):
        check(stages, broken(stages, dangling))


def test_two_ops_of_one_name_are_caught(stages: Stages) -> None:
    def doubled(graph_def: Any) -> None:
        graph_def.node.add().CopyFrom(nodes_of(graph_def, "Const")[0])

    with pytest.raises(WuShardError, match="two ops of the new graph share the name"):
        check(stages, broken(stages, doubled))


@pytest.mark.parametrize("field", ["control_outputs", "outputs"])
def test_a_result_that_is_gone_is_caught(stages: Stages, field: str) -> None:
    gone: Any = ("nothing",) if field == "control_outputs" else (Value("nothing"),) * 2
    lost = dataclasses.replace(stages.result, **{field: gone})
    with pytest.raises(WuShardError, match="must yield nothing, which is gone"):
        check(stages, lost)


def test_a_plan_for_another_graph_is_refused(stages: Stages) -> None:
    other = dataclasses.replace(stages.plan, fingerprint="0123")
    devices = stages.analysis.updates[0].devices
    with pytest.raises(WuShardError, match=r"made for graph 0123.*plan again"):
        rewrite(stages.view, other, InProcess(in_this_process(devices)))
