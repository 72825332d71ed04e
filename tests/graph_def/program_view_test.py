"""A program is seen with its own ops and what all replicas share, and with nothing of the host."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from tests.graph_def.programs import OPTIMIZERS, Graph, graph, optimizer_step
from tf_wu_shard.errors import GraphDefError
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph_def.program import program_of
from tf_wu_shard.graph_def.program_view import ProgramView, imported, program_view

REPLICAS = 2


@pytest.fixture(scope="module")
def made() -> Graph:
    """A program of two replicas that Adam trains."""
    return graph(optimizer_step(OPTIMIZERS["adam"]), replicas=REPLICAS)


@pytest.fixture(scope="module")
def seen(made: Graph) -> ProgramView:
    return program_view(made.graph_def, program_of(made.graph_def))


def trainable(view: ProgramView) -> set[str]:
    return {name for name, ref in view.view.variables.items() if ref.trainable}


def test_the_ops_of_the_program_stand_there_and_those_of_the_host_do_not(
    made: Graph, seen: ProgramView
) -> None:
    names = {op.name for op in seen.view}
    assert {node.name for node in seen.program.nodes} <= names
    hosts_own = {"w/Assign", "w/Adam/Assign", "init"}
    assert hosts_own <= seen.nodes.keys() and not hosts_own & names
    assert {n.name for n in made.graph_def.node} == seen.nodes.keys()


def test_inputs_are_taken_together_by_replica(seen: ProgramView) -> None:
    (rows,) = (
        op
        for op in seen.view
        if op.type == "TPUReplicatedInput" and {v.op for v in op.inputs} == {"x_0", "x_1"}
    )
    # What the host feeds is opaque, but for its type and shape.
    assert {seen.view.ops[v.op].type for v in rows.inputs} == {"WuShardOutside"}
    fed = rows.inputs[0]
    assert seen.view.dtype(fed) == tf.float32.as_datatype_enum
    assert seen.view.shape(fed) == seen.view.shape(Value(rows.name))


def test_a_variable_is_one_that_all_replicas_share_and_a_weight_is_told_from_a_slot(
    seen: ProgramView,
) -> None:
    refs = seen.view.variables
    assert trainable(seen) == {"w", "b"} and {"w/Adam", "w/Adam_1"} <= refs.keys()
    assert refs["w/Adam"].shape == refs["w"].shape == (60, 130)
    assert all(ref.num_replicas == 1 and ref.mirrored for ref in refs.values())


def test_what_the_host_reads_and_awaits_stays(made: Graph, seen: ProgramView) -> None:
    outside = {n.name for n in made.graph_def.node} - {n.name for n in seen.program.nodes}
    read = {
        text.partition(":")[0]
        for node in made.graph_def.node
        if node.name in outside
        for text in node.input
        if not text.startswith("^")
    }
    assert {value.op for value in seen.view.outputs} == read - outside
    assert seen.program.metadata.name in seen.view.control_outputs


def test_a_weight_that_a_called_function_updates_is_one() -> None:
    def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.compat.v1.variable_scope("", use_resource=True):
            w = tf.compat.v1.get_variable("w", [x.shape[1], y.shape[1]])
        summed = tf.compat.v1.tpu.cross_replica_sum(tf.matmul(x, y, transpose_a=True))

        @tf.function
        def update(gradient: tf.Tensor) -> None:
            tf.raw_ops.ResourceApplyGradientDescent(var=w.handle, alpha=0.1, delta=gradient)

        update(summed)
        return tf.reduce_sum(x)

    found = graph(step, replicas=REPLICAS).graph_def
    assert trainable(program_view(found, program_of(found))) == {"w"}


def test_what_tensorflow_does_not_take_is_told() -> None:
    broken: Any = tf.compat.v1.GraphDef()
    broken.node.add(name="a", op="Identity", input=["nowhere"])
    with pytest.raises(GraphDefError, match=r"nowhere.*as_graph_def"):
        imported(broken)
