"""Matrix functions of a rewritten TPU program stand once for each whole tensor of a replica."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from typing import Any

import keras
import pytest
import tensorflow as tf

from tests.equivalence.matrix_optimizers import Cooled, Shampoo
from tests.weight_update.rewrite.stages import Stages, keras_step
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.grounds.tpu.collectives import TpuCluster
from tf_wu_shard.grounds.tpu.torus import one_group
from tf_wu_shard.step.capture import capture
from tf_wu_shard.step.replicas import tpu_dialect
from tf_wu_shard.weight_update.analysis.analyze import analyze
from tf_wu_shard.weight_update.plan.planner import make_plan
from tf_wu_shard.weight_update.rewrite.rewriter import rewrite
from tf_wu_shard.weight_update.rewrite.verify import verify

Strategies = Callable[..., tf.distribute.TPUStrategy]


def stages_of(
    strategy: tf.distribute.Strategy,
    optimizer: Callable[[], Any],
    shapes: tuple[tuple[int, ...], ...],
) -> Stages:
    """What the stages make of a step under a TPUStrategy."""
    graph = keras_step(strategy, optimizer, shapes)
    captured = capture(graph)
    assert captured.cluster is not None
    dialect = tpu_dialect(captured.cluster, captured)
    analysis = analyze(captured.view, dialect)
    options = ShardingOptions(min_elements=1)
    plan = make_plan(analysis, options, dialect.preferences)
    result = rewrite(captured.view, plan, dialect)
    verify(captured.view, plan, result)
    return Stages(captured, dialect, analysis, plan, result)


def count_of(view: Any, op_type: str) -> int:
    """How many ops of a type have an effect or a result that is looked at."""
    return sum(op.type == op_type and op.name in view.live for op in view)


def cooled() -> keras.optimizers.Optimizer:
    """It computes one matrix product for each matrix."""
    return Cooled(0.01)


@pytest.fixture(scope="module")
def stages(emulated: Strategies) -> Stages:
    """Five equal matrices and a lone one, on four replicas."""
    return stages_of(emulated(4), cooled, ((64, 40),) * 5 + ((40, 96),))


def test_a_replica_computes_its_turns_and_what_is_alone(stages: Stages) -> None:
    after = stages.result.view(stages.view)
    assert count_of(stages.view, "MatMul") == 5 + 1
    assert count_of(after, "MatMul") == 2 + 1


def test_there_is_an_all_to_all_there_and_back_and_one_gather(stages: Stages) -> None:
    after = stages.result.view(stages.view)
    more = count_of(after, "AllToAll") - count_of(stages.view, "AllToAll")
    assert more == stages.result.emitted["all_to_all"] == 2
    assert [stack.by_turns for stack in stages.plan.stacks] == [True, False]


def test_no_op_of_an_old_function_is_left(stages: Stages) -> None:
    functions = {
        name
        for update in stages.analysis.updates
        for op in update.body
        if op.function is not None
        for name in op.ops
    }
    assert functions and functions.isdisjoint(node.name for node in stages.result.nodes)


def test_what_waited_for_an_old_function_waits_for_what_took_its_place(
    emulated: Strategies,
) -> None:
    class Waiting(keras.optimizers.SGD):
        """Counts its steps once more, after a product that nobody else looks at in time."""

        def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
            weight = variable.value if isinstance(variable, keras.Variable) else variable
            turned = tf.matmul(gradient, tf.ones((40, 40)))
            with tf.control_dependencies([turned]):
                weight.assign_sub(gradient * learning_rate)
            weight.assign_sub(turned * learning_rate)

    found = stages_of(emulated(4), lambda: Waiting(0.01), ((64, 40),))
    assert found.result.emitted["all_gather"] >= 1
    products = {f"^{n.name}" for n in found.result.nodes if n.op == "MatMul"}
    assert any(products.intersection(node.input) for node in found.result.nodes)


def test_values_from_outside_are_selected_where_they_differ(emulated: Strategies) -> None:
    after = {}
    for shapes in [((64, 64),) * 2, ((64, 64),)]:
        found = stages_of(emulated(4), cooled, shapes)
        (function,) = {update.functions for update in found.analysis.updates[:1]}
        assert [len(own.outside) for own in function] == [1]
        after[len(shapes)] = Counter(
            node.op for node in found.result.nodes if "/outside_0/" in node.name
        )
    assert after[2]["Pack"] == 1 and after[1]["Pack"] == 0


def test_a_plan_may_have_a_stack_computed_everywhere(stages: Stages) -> None:
    turns, lone = stages.plan.stacks
    everywhere = dataclasses.replace(turns, each=5, by_turns=False)
    plan = dataclasses.replace(stages.plan, stacks=(everywhere, lone))
    cluster = TpuCluster("cluster_train", one_group(4))
    result = rewrite(stages.view, plan, cluster)
    verify(stages.view, plan, result)
    assert "all_to_all" not in result.emitted
    assert count_of(result.view(stages.view), "MatMul") == 5 + 1


def test_what_enters_several_functions_is_put_together_once(emulated: Strategies) -> None:
    found = stages_of(emulated(4), Shampoo, ((24, 40),) * 4 + ((40, 96),))
    assert [stack.by_turns for stack in found.plan.stacks] == [True] * 3 + [False] * 3
    # The gradient, both statistics back, both as they are kept, and the step.
    assert found.result.emitted["all_to_all"] == 6
    # Of the lone one what enters, in one gather each, and no way back; and the weights.
    gathers = found.result.emitted["all_gather"]
    assert gathers == 3 + len({v.bucket for v in found.plan.variables})
