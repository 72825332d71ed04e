"""All sums that may travel at once do, and what stays outside reads what they add up to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import pytest
import tensorflow as tf

from tests.equivalence.norm_optimizers import ClippedAfter, ClippedLamb, Lamb, LoggedNorms
from tests.weight_update.rewrite.stages import Stages, keras_step, run_stages
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.weight_update.rewrite.verify import verify

SHAPES = ((5, 40), (40,), (3,))


def stages_of(
    strategy: tf.distribute.Strategy, optimizer: Callable[[], Any], **options: Any
) -> Stages:
    graph = keras_step(strategy, optimizer, SHAPES)
    stages = run_stages(graph, ShardingOptions(**({"min_elements": 1} | options)))
    verify(stages.view, stages.plan, stages.result)
    return stages


@pytest.fixture
def strategy(strategy_of: Callable[[int], Any]) -> Any:
    return strategy_of(2)


def nodes_of(stages: Stages) -> dict[str, Any]:
    return {node.name: node for node in stages.result.nodes}


@pytest.mark.parametrize(
    ("optimizer", "all_reduces"),
    [
        (lambda: keras.optimizers.Adam(), 0),
        # A norm of each of three gradients.
        (lambda: ClippedAfter("global", 0.01), 1),
        (lambda: ClippedAfter("each", 0.01), 1),
        # Two norms of each of three weights and updates; neither needs the other.
        (lambda: Lamb(0.01), 1),
        # The clipped gradient's norm comes first.
        (lambda: ClippedLamb(0.01), 2),
    ],
    ids=["Adam", "global norm", "each norm", "LAMB", "LAMB after global norm"],
)
def test_there_is_one_all_reduce_for_each_sum_behind_another(
    strategy: Any, optimizer: Callable[[], Any], all_reduces: int
) -> None:
    stages = stages_of(strategy, optimizer)
    assert len(stages.plan.variables) == 3
    assert stages.result.emitted.get("all_reduce", 0) == all_reduces


def test_no_old_sum_over_a_sharded_tensor_is_left(strategy: Any) -> None:
    stages = stages_of(strategy, lambda: Lamb(0.01))
    sums = [op for u in stages.analysis.updates for op in u.body if op.sum is not None]
    assert len(sums) == 6
    assert not {name for op in sums for name in op.ops} & set(nodes_of(stages))


def test_a_norm_that_is_only_kept_is_read_from_the_all_reduce(strategy: Any) -> None:
    stages = stages_of(strategy, lambda: LoggedNorms(0.01))
    nodes = nodes_of(stages)
    kept = [n for n in nodes.values() if n.op == "Sqrt" and not n.name.startswith("wu_shard")]
    doubled = [nodes[n.input[0]] for n in kept]
    assert len(doubled) == 2 * len(SHAPES)
    read = {text for node in doubled for text in node.input if text.startswith("wu_shard")}
    assert {nodes[name].op for name in read} == {"Reshape"} and len(read) == len(SHAPES)


def test_a_norm_of_a_tensor_left_whole_stays_as_it_is(strategy: Any) -> None:
    # Only the matrix is large enough; the norms of the vectors are taken of the summed gradients.
    stages = stages_of(strategy, lambda: ClippedAfter("global", 0.01), min_elements=100)
    assert [v.layout.shape for v in stages.plan.variables] == [(5, 40)]
    # One for the vectors' gradients, which shared a carrier, and one for the matrix's norm.
    assert stages.result.emitted["all_reduce"] == 2
    old = [n for n in nodes_of(stages).values() if n.op == "L2Loss"]
    assert len(old) == 2 * 2


def test_parts_of_sums_of_16_bits_travel_in_32(strategy: Any) -> None:
    with strategy.scope():
        weight = tf.Variable(tf.ones((5, 40), tf.bfloat16), name="narrow")

    class Normed(keras.optimizers.SGD):
        def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
            variable.assign_sub(gradient / tf.reduce_sum(gradient))

    with strategy.scope():
        optimizer = Normed(0.1)
        optimizer.build([weight])

    @tf.function(autograph=False)
    def step() -> Any:
        def replica() -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(weight * weight)
            optimizer.apply_gradients([(tape.gradient(loss, weight), weight)])
            return loss

        return strategy.run(replica)

    stages = run_stages(step.get_concrete_function().graph)
    parts = [n for n in stages.result.nodes if n.op == "Sum" and "/wu_shard/" in n.name]
    assert {n.attr["T"].type for n in parts} == {tf.float32.as_datatype_enum}
    assert len(parts) == 2 and stages.result.emitted["all_reduce"] == 1
