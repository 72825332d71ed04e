"""What every rewrite promises, looked up in the finished graph by means of its own.

`rewrite/verify.py` asks the same before a graph is used; here nothing of its code takes part.
"""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

import keras
import pytest
import tensorflow as tf

import tf_wu_shard
from tests.equivalence.in_process import (
    StrategyOf,
    compiled,
    dense_model,
    step_of,
    turn_off,
    turn_on,
)
from tf_wu_shard.grounds.in_process.collectives import InProcess
from tf_wu_shard.grounds.in_process.recognise import replica_devices
from tf_wu_shard.replicas import in_this_process
from tf_wu_shard.step.capture import capture
from tf_wu_shard.weight_update.analysis.analyze import analyze

OPTIMIZERS = {
    "adamw": (lambda: keras.optimizers.AdamW(0.01), 2),
    "momentum": (lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True), 1),
    "amsgrad": (lambda: keras.optimizers.Adam(amsgrad=True, global_clipnorm=1.0), 3),
}

WRITES = ("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp")


class Traced:
    """A traced step and what it reads of it."""

    def __init__(self, strategy: tf.distribute.Strategy, optimizer: Any, hidden: int) -> None:
        keras.utils.set_random_seed(1)
        self.model = compiled(
            strategy, lambda: dense_model(hidden=hidden), optimizer=optimizer, built=True
        )
        self.concrete = step_of(strategy, self.model).get_concrete_function()
        self.graph = self.concrete.graph
        self.types = collections.Counter(op.type for op in self.graph.get_operations())
        self.writes: collections.Counter[int] = collections.Counter()
        for external, internal in self.graph.captures:
            if external.dtype == tf.resource:
                self.writes[id(external)] += sum(c.type in WRITES for c in internal.consumers())

    def writes_of(self, variable: Any) -> list[int]:
        """Per replica, how many ops write a mirrored variable through its own handle."""
        return [self.writes[id(component.handle)] for component in variable.value.values]


@dataclasses.dataclass(frozen=True)
class Pair:
    """The same step of 4 replicas, traced without and with the flag."""

    unsharded: Traced
    sharded: Traced
    report: Any
    slots: int


@pytest.fixture(scope="module", params=OPTIMIZERS)
def traced(request: pytest.FixtureRequest, strategy_of: StrategyOf) -> Pair:
    optimizer, slots = OPTIMIZERS[request.param]
    turn_off()
    unsharded = Traced(strategy_of(4), optimizer, hidden=7)
    tf_wu_shard.clear_reports()
    turn_on()
    sharded = Traced(strategy_of(4), optimizer, hidden=7)
    turn_off()
    (report,) = tf_wu_shard.reports()
    return Pair(unsharded, sharded, report, slots)


def test_a_rewritten_step_keeps_what_it_promised(traced: Pair) -> None:
    unsharded, sharded, slots = traced.unsharded, traced.sharded, traced.slots
    report = traced.report
    assert len(report.variables) == 4 and report.left_alone == ()
    # A weight is written once on each replica, however often its optimizer writes it.
    for before, after in zip(
        unsharded.model.trainable_variables, sharded.model.trainable_variables, strict=True
    ):
        assert min(unsharded.writes_of(before)) >= 1
        assert sharded.writes_of(after) == [1] * 4
    # Nothing else is written more or less often: shards take the writes of their slots.
    weights = [sum(sharded.writes_of(v)) for v in sharded.model.trainable_variables]
    rewritten = sum(unsharded.writes.values()) - sum(
        sum(unsharded.writes_of(v)) for v in unsharded.model.trainable_variables
    )
    assert sum(sharded.writes.values()) - sum(weights) == rewritten >= 16 * slots
    # Four gradients were reduced by collectives, and none is any more.
    assert unsharded.types["CollectiveReduceV2"] > 0
    gradients = unsharded.types["CollectiveReduceV2"] - sharded.types["CollectiveReduceV2"]
    assert gradients >= 4
    sizes = {int(tf.size(v)) for v in sharded.model.trainable_variables} | {
        sum(int(tf.size(v)) for v in sharded.model.trainable_variables)
    }
    for op in sharded.graph.get_operations():
        if op.type == "CollectiveReduceV2":
            assert op.inputs[0].shape.num_elements() not in sizes


def test_the_outputs_keep_their_shapes(traced: Pair) -> None:
    unsharded, sharded = traced.unsharded, traced.sharded
    assert sharded.concrete.structured_outputs.shape == unsharded.concrete.output_shapes
    assert [t.dtype for t in sharded.graph.outputs] == [t.dtype for t in unsharded.graph.outputs]
    assert [t.shape for t in sharded.graph.outputs] == [t.shape for t in unsharded.graph.outputs]


def test_a_second_look_finds_nothing_more_to_shard(traced: Pair) -> None:
    unsharded, sharded = traced.unsharded, traced.sharded
    assert _updates(unsharded.graph) == 4
    assert _updates(sharded.graph) == 0


def _updates(graph: Any) -> int:
    view = capture(graph).view
    return len(analyze(view, InProcess(in_this_process(replica_devices(view)))).updates)


def test_a_large_tensor_has_under_one_percent_of_padding(strategy_of: StrategyOf) -> None:
    turn_on()
    Traced(strategy_of(4), keras.optimizers.Adam, hidden=20_011)
    (report,) = tf_wu_shard.reports()
    whole, cut = report.slot_bytes_per_replica.unsharded, report.slot_bytes_per_replica.sharded
    assert cut <= whole * (1 / 4 + 0.01)
    assert all(v.padding < 0.01 * 60_000 for v in report.variables)
