"""What an op does to a variable through its handle is brought to the top as reads and writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tests.graph.tracing import weight_and_slot
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.program.functionalize import functionalized
from tf_wu_shard.program.fused_values import on_scratch
from tf_wu_shard.step.capture import capture

Strategies = Callable[[int], tf.distribute.MirroredStrategy]


def with_slot_as_value(body: Callable[[], Any]) -> GraphView:
    """A traced function in which the slot "momentum" alone is to be read and written as a value."""
    graph = tf.function(body, autograph=False).get_concrete_function().graph
    captured = capture(graph)
    refs = captured.view.variables
    handles = {name: ref for name, ref in refs.items() if ref.key == "momentum"}
    return functionalized(graph, captured, handles, on_scratch).view


def takers(view: GraphView, key: str) -> list[str]:
    """The types of the ops that take a handle of a variable, in the order of the view."""
    handles = {name for name, ref in view.variables.items() if ref.key == key}
    return [op.type for op in view if any(value.op in handles for value in op.inputs)]


def test_a_fused_update_works_on_a_variable_of_its_own_and_the_slot_is_written_from_it(
    strategy_of: Strategies,
) -> None:
    weight, slot = weight_and_slot(strategy_of(2))
    own, of_slot = weight.values[0], slot.values[0]

    def step() -> None:
        tf.raw_ops.ResourceApplyMomentum(
            var=own.handle, accum=of_slot.handle, lr=0.1, grad=tf.ones((5, 7)), momentum=0.9
        )

    view = with_slot_as_value(step)
    assert takers(view, "momentum") == ["ReadVariableOp", "AssignVariableOp"]
    # The weight is not asked for: the kernel goes on working on it.
    assert takers(view, "weight") == ["ResourceApplyMomentum"]
    read, write = (
        op
        for op in view
        if op.type in ("ReadVariableOp", "AssignVariableOp")
        and view.variables.get(op.inputs[0].op) is not None
    )
    applied = next(op for op in view if op.type == "ResourceApplyMomentum")
    assert view.producer(write.inputs[1]).controls == (applied.name,)
    assert read.name in write.controls and write.name in view.control_outputs


def test_what_waits_for_such_an_op_waits_for_the_write(strategy_of: Strategies) -> None:
    _, slot = weight_and_slot(strategy_of(2))
    of_slot = slot.values[0]

    def step() -> Any:
        one = tf.constant(1.0)
        done = tf.raw_ops.ResourceScatterAdd(
            resource=of_slot.handle, indices=[0], updates=tf.ones((1, 7))
        )
        with tf.control_dependencies([done]):
            return tf.identity(one, name="later")

    view = with_slot_as_value(step)
    (write,) = (
        op for op in view if op.type == "AssignVariableOp" and op.inputs[0].op in view.variables
    )
    assert write.name in view.ops["later"].controls


def test_what_is_looked_up_is_looked_up_in_the_value(strategy_of: Strategies) -> None:
    _, slot = weight_and_slot(strategy_of(2))
    of_slot = slot.values[0]
    view = with_slot_as_value(
        lambda: tf.raw_ops.ResourceGather(resource=of_slot.handle, indices=[1, 3], dtype=tf.float32)
    )
    assert takers(view, "momentum") == ["ReadVariableOp"]
    (found,) = view.outputs
    source = view.producer(found)
    while source.type == "Identity":
        source = view.producer(source.inputs[0])
    assert source.type == "GatherV2"


def test_a_call_takes_the_value_and_one_that_ignores_the_slot_stays(
    strategy_of: Strategies,
) -> None:
    _, slot = weight_and_slot(strategy_of(2))
    of_slot = slot.values[0]
    read = tf.function(lambda: tf.reduce_sum(of_slot), jit_compile=True)

    def ignoring(handle: Any) -> Any:
        del handle
        return tf.constant(1.0)

    view = with_slot_as_value(read)
    assert takers(view, "momentum") == ["ReadVariableOp"]
    (call,) = (op for op in with_slot_as_value(lambda: read()) if "PartitionedCall" in op.type)
    assert call.attribute("_XlaMustCompile").b
    ignored = with_slot_as_value(lambda: tf.function(ignoring)(of_slot.handle))
    assert takers(ignored, "momentum") == ["PartitionedCall"]


def test_a_dataset_whose_functions_take_the_slot_stays(strategy_of: Strategies) -> None:
    # They run when somebody goes through its elements, and not where it is made.
    _, slot = weight_and_slot(strategy_of(2))
    of_slot = slot.values[0]

    def step() -> Any:
        rows = tf.data.Dataset.range(3).map(lambda n: of_slot.assign_add(tf.ones((5, 7)))[0, 0])
        return rows.reduce(0.0, lambda total, row: total + row)

    assert takers(with_slot_as_value(step), "momentum") == ["MapDataset"]


def test_reads_and_writes_stay_as_they_are(strategy_of: Strategies) -> None:
    _, slot = weight_and_slot(strategy_of(2))
    of_slot = slot.values[0]

    def step() -> Any:
        of_slot.assign_add(tf.ones((5, 7)))
        return of_slot.read_value()

    assert takers(with_slot_as_value(step), "momentum") == [
        "AssignAddVariableOp",
        "ReadVariableOp",
    ]


def test_whether_it_has_a_value_is_known(strategy_of: Strategies) -> None:
    _, slot = weight_and_slot(strategy_of(2))
    of_slot = slot.values[0]
    view = with_slot_as_value(lambda: tf.raw_ops.VarIsInitializedOp(resource=of_slot.handle))
    assert "VarIsInitializedOp" not in takers(view, "momentum")
