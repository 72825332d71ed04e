"""The rewritten graph communicates as planned, keeps what it must and drops what it can."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tests.graph.tracing import momentum_step, traced, weight_and_slot
from tests.weight_update.rewrite.stages import keras_step, run_stages
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.graph.ordering import ordered_ops
from tf_wu_shard.weight_update.rewrite.names import scope_of
from tf_wu_shard.weight_update.rewrite.rewriter import rewrite
from tf_wu_shard.weight_update.rewrite.verify import verify

Strategies = Callable[[int], tf.distribute.MirroredStrategy]
OPTIMIZERS = {
    "sgd": lambda: tf.keras.optimizers.SGD(0.1),
    "adam": lambda: tf.keras.optimizers.Adam(0.1),
    "adamw": lambda: tf.keras.optimizers.AdamW(0.1, weight_decay=0.01),
    "clipnorm": lambda: tf.keras.optimizers.SGD(0.1, momentum=0.9, clipvalue=0.5),
}


def counted(graph_def: Any) -> Counter[str]:
    return Counter(node.op for node in graph_def.node)


def test_a_bucket_costs_one_reduce_scatter_and_one_all_gather(strategy_of: Strategies) -> None:
    strategy = strategy_of(2)
    stages = run_stages(traced(strategy, momentum_step(*weight_and_slot(strategy))))
    assert stages.result.emitted == {"reduce_scatter": 1, "all_gather": 1}
    assert counted(stages.result.graph_def)["CollectiveReduceV2"] == 0


def test_every_bucket_costs_its_own(strategy_of: Strategies) -> None:
    graph = keras_step(strategy_of(2), OPTIMIZERS["adam"])
    alone = run_stages(graph, ShardingOptions(min_elements=1, bucket_bytes=1))
    assert alone.result.emitted == {"reduce_scatter": 3, "all_gather": 3}
    together = run_stages(graph, ShardingOptions(min_elements=1))
    assert together.result.emitted == {"reduce_scatter": 1, "all_gather": 1}


def test_rewriting_twice_with_one_dialect_makes_the_same_graph(strategy_of: Strategies) -> None:
    graph = keras_step(strategy_of(2), OPTIMIZERS["adam"])
    stages = run_stages(graph, ShardingOptions(min_elements=1, bucket_bytes=1))
    again = rewrite(stages.view, stages.plan, stages.dialect)
    assert again.emitted["all_gather"] == 3, "an odd number, after which turns would have moved"
    assert again.graph_def == stages.result.graph_def


def test_small_gradients_of_a_lost_pack_are_summed_together_once(strategy_of: Strategies) -> None:
    graph = keras_step(strategy_of(2), OPTIMIZERS["adam"])
    stages = run_stages(graph, ShardingOptions(min_elements=100))
    assert stages.result.emitted == {"reduce_scatter": 1, "all_gather": 1, "all_reduce": 1}
    assert {a.variable for a in stages.plan.left_alone} == {"w1", "w2"}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("replicas", [2, 3])
def test_what_is_rewritten_is_sound_and_no_pack_is_left(
    strategy_of: Strategies, optimizer: str, replicas: int
) -> None:
    stages = run_stages(keras_step(strategy_of(replicas), OPTIMIZERS[optimizer]))
    verify(stages.view, stages.plan, stages.result)
    assert [v.variable for v in stages.plan.variables] != []
    types = counted(stages.result.graph_def)
    assert types["CollectiveReduceV2"] == 0
    assert types["IdentityN"] == 0


@pytest.mark.parametrize("operation", ["SUM", "MEAN"])
def test_a_gradient_that_is_left_whole_is_passed_on_without_those_beside_it(
    strategy_of: Strategies, operation: str
) -> None:
    strategy = strategy_of(2)
    weights = [weight_and_slot(strategy, shape)[0] for shape in ((5, 40), (3,))]

    def replica(number: tf.Tensor) -> None:
        del number
        own = [weight * 2.0 for weight in weights]
        totals = tf.distribute.get_replica_context().all_reduce(operation, own)
        for weight, total in zip(weights, tf.identity_n([t * 0.5 for t in totals]), strict=True):
            weight.assign_sub(total)

    stages = run_stages(traced(strategy, replica), ShardingOptions(min_elements=100))
    verify(stages.view, stages.plan, stages.result)
    assert stages.result.emitted == {"reduce_scatter": 1, "all_gather": 1, "all_reduce": 1}
    assert counted(stages.result.graph_def)["IdentityN"] == 0


def test_small_gradients_travel_apart_where_one_waits_for_the_update_of_another(
    strategy_of: Strategies,
) -> None:
    """As those of a generator that is trained through a discriminator that was just updated."""
    strategy = strategy_of(2)
    pairs = [[weight_and_slot(strategy, shape)[0] for shape in ((5, 40), (3,))] for _ in range(2)]

    def replica(number: tf.Tensor) -> None:
        del number
        scale = tf.constant(1.0)
        for pair in pairs:
            own = [weight * scale for weight in pair]
            totals = tf.distribute.get_replica_context().all_reduce("SUM", own)
            for weight, total in zip(pair, totals, strict=True):
                weight.assign_sub(total)
            scale = tf.add_n([tf.reduce_sum(weight) for weight in pair])

    stages = run_stages(traced(strategy, replica), ShardingOptions(min_elements=100))
    verify(stages.view, stages.plan, stages.result)
    assert stages.result.emitted == {"reduce_scatter": 2, "all_gather": 2, "all_reduce": 2}
    # In a cycle they would have no order.
    assert len(ordered_ops(stages.result.nodes)) == len(stages.result.nodes)


def test_what_waits_for_a_value_that_goes_waits_for_what_computes_it_now(
    strategy_of: Strategies,
) -> None:
    def change(total: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([tf.identity(total)]):
            halved = tf.reshape(tf.identity(total * 0.5), total.shape)
        with tf.control_dependencies([halved]):
            tf.print("halved")
        return halved

    strategy = strategy_of(2)
    step = momentum_step(*weight_and_slot(strategy), change=change)
    stages = run_stages(traced(strategy, step))
    assert stages.result.emitted == {"reduce_scatter": 1, "all_gather": 1}
    verify(stages.view, stages.plan, stages.result)
    nodes = {node.name: node for node in stages.result.nodes}
    behind = [node.name for node in nodes.values() if node.op == "PrintV2"]
    for name in behind:
        sources = (text.lstrip("^").partition(":")[0] for text in nodes[name].input)
        behind += [source for source in sources if source not in behind]
    assert any(name.startswith(scope_of("weight", "reduce_scatter")) for name in behind)


def test_the_outputs_keep_their_shapes(strategy_of: Strategies) -> None:
    graph = keras_step(strategy_of(2), OPTIMIZERS["adam"])
    stages = run_stages(graph)
    assert stages.result.outputs == stages.view.outputs


def test_the_same_graph_is_rewritten_the_same_way_and_stays_as_it_was(
    strategy_of: Strategies,
) -> None:
    graph = keras_step(strategy_of(2), OPTIMIZERS["adam"])
    before = graph.as_graph_def().SerializeToString(deterministic=True)
    first, second = run_stages(graph), run_stages(graph)
    one, other = (s.result.graph_def.SerializeToString(deterministic=True) for s in (first, second))
    assert one == other
    assert graph.as_graph_def().SerializeToString(deterministic=True) == before


def test_each_slot_has_one_new_input_a_replica(strategy_of: Strategies) -> None:
    strategy = strategy_of(3)
    stages = run_stages(traced(strategy, momentum_step(*weight_and_slot(strategy))))
    assert [(i.slot, i.replica) for i in stages.result.shard_inputs] == [
        ("momentum", 0),
        ("momentum", 1),
        ("momentum", 2),
    ]


def test_names_are_made_of_what_tensorflow_allows() -> None:
    assert scope_of("dense/kernel", "update") == "wu_shard/dense/kernel/update"
    assert scope_of("a b:ü", "x") == "wu_shard/a_b__/x"
