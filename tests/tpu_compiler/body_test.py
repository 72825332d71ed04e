"""Claims about tpu_compiler/body.py and collectives.py: a cluster becomes a function of its own."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tf_wu_shard.bench.conversation import Worker
from tf_wu_shard.topology import parse_topology
from tf_wu_shard.tpu_compiler import step
from tf_wu_shard.tpu_compiler.body import ReplicaBody, ReplicaBodyError, replica_body
from tf_wu_shard.tpu_compiler.hlo import LoweringError, hlo_of

# These run ops, and devices cannot be divided once TensorFlow has used one.
pytestmark = pytest.mark.usefixtures("logical_cpus")

ROWS = 8


@pytest.fixture(scope="module")
def strategy() -> tf.distribute.TPUStrategy:
    return step.strategy_for(parse_topology("v5e:2x4"))


def traced(
    strategy: tf.distribute.TPUStrategy,
    replica_fn: Callable[[tf.Variable, tf.Tensor], Any],
    spec: tf.TensorSpec | None = None,
) -> Any:
    """The FuncGraph of a step that runs `replica_fn` on a weight and an input."""
    with strategy.scope():
        weight = tf.Variable(tf.zeros([ROWS]))

    @tf.function
    def train(inputs: tf.Tensor) -> Any:
        def replica(inputs: tf.Tensor) -> Any:
            return replica_fn(weight, inputs)

        return strategy.run(replica, args=(inputs,))

    return train.get_concrete_function(spec or tf.TensorSpec([ROWS])).graph


def requested(body: ReplicaBody, compiler: Worker, folder: pathlib.Path) -> dict[str, int]:
    """The collectives of a body's HLO."""
    (folder / "step.pb").write_bytes(hlo_of(body))
    answer = compiler.ask(
        "compile",
        hlo=str(folder / "step.pb"),
        topology="v5e:2x4",
        chip_config="default",
        optimized=str(folder / "step.hlo"),
    )
    assert not answer["error"]
    found: dict[str, int] = answer["requested"]
    return found


def summed(value: tf.Tensor) -> tf.Tensor:
    return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, value)


def descend(weight: tf.Variable, inputs: tf.Tensor) -> tf.Tensor:
    weight.assign_sub(summed(inputs))
    return tf.reduce_sum(weight)


def test_a_body_takes_the_replicas_number_its_input_and_its_variables(
    strategy: tf.distribute.TPUStrategy,
) -> None:
    body = replica_body(traced(strategy, descend))
    assert [(a.shape, a.is_variable) for a in body.arguments] == [
        *(((), False), ((ROWS,), False), ((ROWS,), True))
    ]
    assert body.num_replicas == 8
    assert len(body.outputs) == 1
    assert not any(node.attr["_tpu_replicate"].s for node in body.graph_def.node)


def test_a_variable_with_a_handle_for_each_replica_enters_once(
    compiler: Worker, tmp_path: pathlib.Path
) -> None:
    strategy = step.strategy_for(parse_topology("v5e:2x4"))
    strategy._enable_packed_variable_in_eager_mode = False
    graph = traced(strategy, descend)
    (replicated,) = (
        op
        for op in graph.get_operations()
        if op.type == "TPUReplicatedInput" and op.outputs[0].dtype == tf.resource
    )
    assert len(replicated.inputs) == 8
    body = replica_body(graph)
    assert [a.shape for a in body.arguments if a.is_variable] == [(ROWS,)]
    assert requested(body, compiler, tmp_path) == {"all-reduce": 1}


def test_a_sum_over_the_replicas_is_one_all_reduce_over_all_of_them(
    strategy: tf.distribute.TPUStrategy, compiler: Worker, tmp_path: pathlib.Path
) -> None:
    body = replica_body(traced(strategy, descend))
    assert requested(body, compiler, tmp_path) == {"all-reduce": 1}
    (groups,) = (n for n in body.graph_def.node if "group_assignment" in n.name)
    assert tf.make_ndarray(groups.attr["value"].tensor).tolist() == [list(range(8))]


def test_a_collective_in_a_called_function_is_found(
    strategy: tf.distribute.TPUStrategy, compiler: Worker, tmp_path: pathlib.Path
) -> None:
    @tf.function
    def inner(inputs: tf.Tensor) -> tf.Tensor:
        return summed(inputs)

    def replica(weight: tf.Variable, inputs: tf.Tensor) -> tf.Tensor:
        weight.assign_sub(inner(inputs))
        return inputs[0]

    body = replica_body(traced(strategy, replica))
    assert requested(body, compiler, tmp_path) == {"all-reduce": 1}


def test_a_collective_in_a_branch_is_found(
    strategy: tf.distribute.TPUStrategy, compiler: Worker, tmp_path: pathlib.Path
) -> None:
    def replica(weight: tf.Variable, inputs: tf.Tensor) -> tf.Tensor:
        def update() -> tf.Tensor:
            weight.assign_sub(summed(inputs))
            return weight.read_value()

        return tf.cond(inputs[0] > 0, update, lambda: weight.read_value())

    body = replica_body(traced(strategy, replica))
    assert requested(body, compiler, tmp_path) == {"all-reduce": 1}


def test_a_collective_in_a_loop_is_found(
    strategy: tf.distribute.TPUStrategy, compiler: Worker, tmp_path: pathlib.Path
) -> None:
    def replica(weight: tf.Variable, inputs: tf.Tensor) -> tf.Tensor:
        _, total = tf.while_loop(
            lambda index, _: index < 3,
            lambda index, total: (index + 1, total + summed(inputs)),
            (tf.constant(0), inputs),
        )
        weight.assign_sub(total)
        return total

    body = replica_body(traced(strategy, replica))
    assert requested(body, compiler, tmp_path) == {"all-reduce": 1}


def test_a_value_of_the_first_replica_goes_by_an_all_to_all(
    strategy: tf.distribute.TPUStrategy, compiler: Worker, tmp_path: pathlib.Path
) -> None:
    with strategy.scope():
        counter = tf.Variable(
            tf.constant(0, tf.int64), aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA
        )

    def replica(weight: tf.Variable, inputs: tf.Tensor) -> tf.Tensor:
        counter.assign_add(tf.constant(1, tf.int64))
        return descend(weight, inputs)

    body = replica_body(traced(strategy, replica))
    assert requested(body, compiler, tmp_path) == {"all-reduce": 1, "all-to-all": 1}


def test_an_optimization_barrier_and_a_replicas_number_pass_through(
    strategy: tf.distribute.TPUStrategy, compiler: Worker, tmp_path: pathlib.Path
) -> None:
    body = replica_body(traced(strategy, descend))
    for node in body.graph_def.node:
        if node.op == "Identity" and node.attr["T"].type == tf.float32.as_datatype_enum:
            node.op = "XlaOptimizationBarrier"
            del node.attr["T"]
            node.attr["T"].list.type.append(tf.float32.as_datatype_enum)
    number = body.graph_def.node.add(name="number", op="XlaReplicaId")
    body = ReplicaBody(
        body.graph_def, body.arguments, (f"{number.name}:0",), body.effects, body.num_replicas
    )
    assert requested(body, compiler, tmp_path) == {"all-reduce": 1}


def test_an_open_batch_needs_to_be_told(strategy: tf.distribute.TPUStrategy) -> None:
    def replica(weight: tf.Variable, inputs: tf.Tensor) -> tf.Tensor:
        return descend(weight, tf.reduce_sum(inputs, axis=0))

    graph = traced(strategy, replica, tf.TensorSpec([None, ROWS]))
    with pytest.raises(ReplicaBodyError, match=r"drop_remainder=True"):
        replica_body(graph)
    assert [a.shape for a in replica_body(graph, batch=3).arguments[:2]] == [(), (3, ROWS)]


def test_an_unmarked_op_between_two_of_the_cluster_is_refused(
    strategy: tf.distribute.TPUStrategy,
) -> None:
    graph = traced(strategy, descend)
    op = next(op for op in graph.get_operations() if op.type == "CrossReplicaSum")
    op._clear_attr("_tpu_replicate")
    with pytest.raises(ReplicaBodyError, match=r"CrossReplicaSum reads the TPU cluster and is"):
        replica_body(graph)


def test_a_graph_without_a_cluster_is_refused() -> None:
    graph = tf.function(lambda x: x + 1).get_concrete_function(tf.TensorSpec([2])).graph
    with pytest.raises(ReplicaBodyError, match="holds 0 TPU clusters"):
        replica_body(graph)


def test_an_op_that_xla_does_not_know_is_named_in_one_line(
    strategy: tf.distribute.TPUStrategy,
) -> None:
    def replica(weight: tf.Variable, inputs: tf.Tensor) -> tf.Tensor:
        descend(weight, inputs)
        return tf.strings.length(tf.strings.as_string(inputs))

    body = replica_body(traced(strategy, replica))
    with pytest.raises(LoweringError, match=r"^the step cannot be turned into HLO: .*AsString.*$"):
        hlo_of(body)
