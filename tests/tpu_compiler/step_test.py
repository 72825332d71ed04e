"""Claims about tpu_compiler/step.py: the real train step, traced for any number of replicas."""

from __future__ import annotations

import keras
import pytest
import tensorflow as tf

from tf_wu_shard import models
from tf_wu_shard.topology import parse_topology
from tf_wu_shard.tpu_compiler import step
from tf_wu_shard.tpu_compiler.body import ReplicaBody, replica_body

# These run ops, and devices cannot be divided once TensorFlow has used one.
pytestmark = pytest.mark.usefixtures("logical_cpus")


def body_for(topology: str) -> ReplicaBody:
    strategy = step.strategy_for(parse_topology(topology))
    return replica_body(
        step.trace_model("transformer_lm", optimizer="adam", batch=2, strategy=strategy)
    )


def test_a_step_for_256_replicas_is_as_large_as_for_16() -> None:
    few, many = body_for("v5e:4x4"), body_for("v5e:16x16")
    assert (few.num_replicas, many.num_replicas) == (16, 256)
    counts = [sorted(node.op for node in body.graph_def.node) for body in (few, many)]
    assert counts[0] == counts[1]
    shapes = [[(a.shape, a.dtype, a.is_variable) for a in b.arguments] for b in (few, many)]
    assert shapes[0] == shapes[1]


def test_the_loss_is_divided_and_gradients_are_summed_over_every_replica() -> None:
    body = body_for("v5e:16x16")
    nodes = {node.name: node for node in body.graph_def.node}
    sums = [node for node in nodes.values() if node.op == "XlaAllReduce"]
    assert len(sums) == 28
    for node in sums:
        groups = tf.make_ndarray(nodes[node.input[1]].attr["value"].tensor)
        assert groups.tolist() == [list(range(256))]


def test_only_training_ends_the_program() -> None:
    strategy = step.strategy_for(parse_topology("v5e:2x2"))
    with strategy.scope():
        model = models.build("mlp")
        model.compile("sgd", models.loss("mlp"))
        model.optimizer.build(model.trainable_variables)
    traced = []

    def look() -> None:
        @tf.function
        def evaluate() -> tf.Tensor:
            def replica() -> tf.Tensor:
                traced.append("evaluate")
                return tf.reduce_sum(tf.convert_to_tensor(model.trainable_variables[0]))

            return strategy.run(replica)

        evaluate.get_concrete_function()

    with pytest.raises(step.NoTrainStepError):
        step.traced_step(look)
    assert traced == ["evaluate"]


def test_nothing_is_run_and_no_weight_has_a_value() -> None:
    strategy = step.strategy_for(parse_topology("v5e:4x4"))
    with strategy.scope():
        model = models.build("mlp", width=128)
        model.compile(keras.optimizers.Adam(), models.loss("mlp"))
        model.optimizer.build(model.trainable_variables)
    step.trace(model, models.data("mlp", 2, width=128), strategy)
    assert int(model.optimizer.iterations.value.values[0].numpy()) == 0
    kernel = model.trainable_variables[0].value
    assert not any(bool(component.is_initialized()) for component in kernel.values)
