"""What a rewritten graph leaves to an owner is computed there alone and handed to who looks."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tests.equivalence.matrix_optimizers import Shampoo
from tests.graph.tracing import weight_and_slot
from tests.weight_update.rewrite.stages import Stages, keras_step, run_stages
from tf_wu_shard.errors import WuShardError
from tf_wu_shard.layout import OwnerLayout
from tf_wu_shard.weight_update.analysis.types import WeightUpdate
from tf_wu_shard.weight_update.rewrite.result import RewriteResult
from tf_wu_shard.weight_update.rewrite.verify import verify

Strategies = Callable[[int], tf.distribute.MirroredStrategy]


@pytest.fixture(scope="module")
def stages(strategy_of: Strategies) -> Stages:
    """Two matrices and a vector, on three replicas."""
    return run_stages(keras_step(strategy_of(3), Shampoo, ((5, 40), (40, 4), (30,))))


def checked(stages: Stages, result: RewriteResult | None = None) -> None:
    verify(stages.view, stages.plan, result or stages.result)


def devices_of(stages: Stages, op_type: str) -> Counter[str]:
    nodes = stages.result.graph_def.node
    return Counter(node.device[-5:] for node in nodes if node.op == op_type)


def test_each_matrix_has_an_owner_and_the_vector_is_cut(stages: Stages) -> None:
    assert {v.variable: str(v.layout) for v in stages.plan.variables} == {
        "w0": "owner replica 0",
        "w1": "owner replica 1",
        "w2": "flat 30/3 pad 18",
    }
    assert stages.result.emitted == {
        **{"reduce": 2, "broadcast": 2},
        **{"reduce_scatter": 1, "all_gather": 1},
    }
    checked(stages)


def test_only_the_owner_computes_matrix_functions(stages: Stages) -> None:
    # Two roots for each matrix.
    assert devices_of(stages, "SelfAdjointEigV2") == {"CPU:0": 2, "CPU:1": 2}
    assert sum(op.type == "SelfAdjointEigV2" for op in stages.view) == 12


def test_slots_have_one_new_input_at_their_owner(stages: Stages) -> None:
    owned = [v for v in stages.plan.variables if isinstance(v.layout, OwnerLayout)]
    slots = [slot.variable for v in owned for slot in v.slots]
    found = Counter(i.slot for i in stages.result.shard_inputs if i.slot in slots)
    assert found == dict.fromkeys(slots, 1) and len(slots) == 6


def test_an_owner_writes_as_before_and_the_others_once(stages: Stages) -> None:
    (first,) = (u for u in stages.analysis.updates if u.name == "w0")
    own = tuple(op.ops[0] for op in writes(first, "w0"))
    assert stages.result.assigns["w0"][0] == own
    assert [len(ops) for ops in stages.result.assigns["w0"]] == [1, 1, 1]


def writes(update: WeightUpdate, key: str) -> list[Any]:
    return [op for op in update.body if op.type.startswith("Assign") and op.variable == key]


def test_a_component_that_is_not_written_as_it_should_is_caught(stages: Stages) -> None:
    own, *others = stages.result.assigns["w0"]
    for told in ((("another",), *others), (own, own, own)):
        broken = dataclasses.replace(stages.result, assigns={**stages.result.assigns, "w0": told})
        with pytest.raises(WuShardError, match="weight w0 is written by"):
            checked(stages, broken)


def step_with_looks(strategy: tf.distribute.Strategy) -> Any:
    """A step that decays its weight first, and returns the norm of what it moved it by."""
    weight, slot = weight_and_slot(strategy)

    @tf.function(autograph=False)
    def step() -> Any:
        def replica() -> Any:
            own = weight * 2.0
            norms = []

            def merged(within: tf.distribute.Strategy, value: Any) -> Any:
                (total,) = within.extended.batch_reduce_to(
                    tf.distribute.ReduceOp.SUM, [(value, weight)]
                )
                return within.extended.update(weight, update, args=(total,), group=False)

            def update(component: tf.Variable, total: tf.Tensor) -> tf.Tensor:
                component.assign_sub(component * 0.1)
                slot.assign_add(tf.cumsum(total))
                component.assign_sub(slot * 0.5)
                return tf.norm(slot)

            norms.append(tf.distribute.get_replica_context().merge_call(merged, args=(own,)))
            return norms[0]

        return strategy.run(replica)

    graph = step.get_concrete_function().graph
    graph.keeps = (weight, slot)
    return graph


def test_who_looks_at_a_value_is_handed_the_owners(strategy_of: Strategies) -> None:
    stages = run_stages(step_with_looks(strategy_of(2)))
    checked(stages)
    assert [str(v.layout) for v in stages.plan.variables] == ["owner replica 0"]
    assert devices_of(stages, "Cumsum") == {"CPU:0": 1}
    assert [len(ops) for ops in stages.result.assigns["weight"]] == [2, 1]
    # Both replicas return a norm of the slot, which is read outside of the update.
    assert len(stages.result.outputs) == len(stages.view.outputs)
    assert [v.key for v in stages.analysis.updates[0].whole_slots] == ["momentum"]
