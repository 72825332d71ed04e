"""What is estimated is what a traced step then holds, to the byte."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_wu_shard
from tests.estimation.nets import net, trained
from tests.selection import cases
from tf_wu_shard.errors import OptionError
from tf_wu_shard.estimation.result import COLUMNS, Estimate, ReplicaEstimate
from tf_wu_shard.report.report import Report
from tf_wu_shard.storage.sharded_slot import sharded_slot_of
from tf_wu_shard.tensorflow_private.distributed_variables import original_handle

k = keras.optimizers

SHAPES = {"hidden/kernel": (300, 500), "hidden/bias": (500,), "out/kernel": (500, 7)}

OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": k.SGD,
    "momentum": lambda: k.SGD(momentum=0.9),
    "adam": k.Adam,
    "amsgrad": lambda: k.Adam(amsgrad=True),
    "adamw": lambda: k.AdamW(clipnorm=1.0),
    "adafactor": k.Adafactor,
    "lion": k.Lion,
    "averaged": lambda: k.Adam(use_ema=True),
    "loss scale": lambda: k.LossScaleOptimizer(k.Adam(global_clipnorm=1.0)),
    "clipped": lambda: k.Lion(clipvalue=0.5),
    "clipped together": lambda: k.Lion(global_clipnorm=0.5),
    "lamb": k.Lamb,
    "muon": k.Muon,
    "schedule-free": k.ScheduleFreeAdamW,
}
ACCUMULATING: dict[str, Callable[[], Any]] = {
    "accumulating": lambda: k.Adam(gradient_accumulation_steps=2),
    "overwriting": lambda: k.Adam(use_ema=True, ema_overwrite_frequency=3),
}
# What every run takes: a norm, means of rows, owners, a branch.
QUICK = {"adamw", "adafactor", "muon", "accumulating"}


def held(variables: list[keras.Variable], replicas: int) -> int:
    """Bytes that the fullest replica stores of variables that have a dimension."""
    counts = [0] * replicas
    for variable in variables:
        components = variable.value.values
        slot = sharded_slot_of(original_handle(components[0]))
        for replica in range(replicas):
            if slot is not None:
                stored = slot.shards[replica].value()
            else:
                stored = components[replica].read_value()
            counts[replica] += (
                stored.dtype.size * int(tf.size(stored)) if variable.shape.rank else 0
            )
    return max(counts)


def row_of(estimate: Estimate) -> ReplicaEstimate:
    """The only row."""
    (row,) = estimate.rows
    return row


def check(model: keras.Model, report: Report, estimate: Estimate, replicas: int) -> None:
    row = row_of(estimate)
    assert row.slots.sharded == held(model.optimizer.variables, replicas)
    assert row.weights.sharded == held(model.trainable_variables, replicas)
    assert row.wire == report.wire_bytes
    shapes = [tuple(v.shape) for v in model.optimizer.variables if v.shape.rank]
    assert row.slots.unsharded == sum(4 * int(np.prod(shape)) for shape in shapes)
    assert {v.layout for v in row.report.variables} == {v.layout for v in report.variables}
    assert {a.reason for a in row.report.left_alone} == {a.reason for a in report.left_alone}


@pytest.mark.parametrize("name", cases(OPTIMIZERS, QUICK))
def test_replicas_of_a_process_hold_what_is_estimated(
    name: str, strategy_of: Callable[[int], tf.distribute.Strategy]
) -> None:
    model, report = trained(strategy_of(2), OPTIMIZERS[name])
    estimate = tf_wu_shard.estimate(model, OPTIMIZERS[name](), 2)
    check(model, report, estimate, 2)


@pytest.mark.parametrize("name", cases([*OPTIMIZERS, *ACCUMULATING], QUICK))
def test_replicas_of_a_tpu_hold_what_is_estimated(
    name: str, emulated: Callable[..., tf.distribute.Strategy]
) -> None:
    make = (OPTIMIZERS | ACCUMULATING)[name]
    model, report = trained(emulated(2), make)
    check(model, report, tf_wu_shard.estimate(model, make(), 2, topology="unknown"), 2)


def test_weights_that_are_read_in_bfloat16_travel_so(
    emulated: Callable[..., tf.distribute.Strategy],
) -> None:
    model, report = trained(emulated(2), k.Adam, "mixed_bfloat16")
    estimate = tf_wu_shard.estimate(model, "adam", 2, topology="unknown")
    check(model, report, estimate, 2)
    assert row_of(estimate).wire.sharded < row_of(estimate).wire.unsharded


def test_the_arithmetic_is_that_of_the_papers() -> None:
    kernel = {"kernel": (128, 512)}
    size = 4 * 128 * 512
    for replicas in (2, 4, 8):
        row = row_of(tf_wu_shard.estimate(kernel, "adam", replicas))
        assert (row.weights.unsharded, row.weights.sharded) == (size, size)
        assert (row.slots.unsharded, row.slots.sharded) == (2 * size, 2 * size // replicas)
        assert row.summed_gradients.sharded == size // replicas
        moved = 2 * size * (replicas - 1) // replicas
        assert (row.wire.unsharded, row.wire.sharded) == (moved, moved)
    cores = row_of(tf_wu_shard.estimate(kernel, "adam", 16, topology="v5e:4x4"))
    assert cores.weights.sharded == size // 16
    assert cores.report.place.startswith("a 4x4 torus")


@pytest.mark.parametrize(
    ("name", "slots"),
    [("sgd", 0), ("adam", 2), ("adamw", 2), ("lion", 1), ("lamb", 2), ("schedule_free_adamw", 2)],
)
def test_slots_are_those_that_keras_makes(name: str, slots: int) -> None:
    row = row_of(tf_wu_shard.estimate({"kernel": (64, 32)}, name, 2))
    assert row.slots.unsharded == slots * 4 * 64 * 32


def test_adafactor_keeps_a_row_and_a_column_beside_its_slot() -> None:
    row = row_of(tf_wu_shard.estimate({"kernel": (300, 200)}, k.Adafactor, 2))
    assert row.slots.unsharded == 4 * (300 * 200 + 300 + 200)
    # Rows and columns stay whole.
    assert row.slots.sharded == 4 * (300 * 100 + 300 + 200)


def test_accumulators_stay_whole() -> None:
    plain = row_of(tf_wu_shard.estimate({"kernel": (64, 32)}, k.Adam(), 2, topology="unknown"))
    size = 4 * 64 * 32
    adam = k.Adam(gradient_accumulation_steps=4)
    estimate = tf_wu_shard.estimate({"kernel": (64, 32)}, adam, 2, topology="unknown")
    assert row_of(estimate).slots.unsharded == plain.slots.unsharded + size
    assert row_of(estimate).slots.sharded == plain.slots.sharded + size
    assert "stays whole" in str(estimate)
    assert "raises an error" in str(tf_wu_shard.estimate({"kernel": (64, 32)}, adam, 2))


def test_element_types_count() -> None:
    half = row_of(tf_wu_shard.estimate({"kernel": ((64, 32), "float16")}, "adam", 2))
    assert half.weights.unsharded == 2 * 64 * 32
    assert half.slots.unsharded == 2 * 2 * 64 * 32


def test_several_numbers_of_replicas_are_a_table() -> None:
    estimate = tf_wu_shard.estimate(SHAPES, "adam", [2, 4, 8])
    assert [row.num_replicas for row in estimate.rows] == [2, 4, 8]
    lines = str(estimate).splitlines()
    assert lines[0] == "Adam, 3 weights, 154,000 elements; on the fullest replica:"
    assert re.split("  +", lines[2].strip()) == [*COLUMNS]
    assert lines[4].split()[:6] == ["4", "99", "%,", "2", "of", "3"]
    assert "1.23 MB -> 311 kB" in lines[4]
    data = json.loads(estimate.to_json())
    # Shards of kernels end at 64-byte boundaries, 16 elements; the bias is whole.
    sharded = 2 * 4 * (37504 + 880 + 500)
    assert data["rows"][1]["slots"] == {"unsharded": 2 * 4 * 154000, "sharded": sharded}
    assert data["rows"][1]["report"]["left_alone"][0]["name"] == "hidden/bias"


def test_one_number_says_why_a_weight_is_left_alone() -> None:
    text = str(tf_wu_shard.estimate(SHAPES, "adam", 4))
    assert "hidden/kernel  flat 150000/4" in text
    assert "hidden/bias    500 elements, below min_elements=1024" in text


def test_options_are_those_of_the_flag_unless_given() -> None:
    tf.config.optimizer.set_experimental_options(
        {"weight_update_sharding": tf_wu_shard.ShardingOptions(min_elements=1)}
    )
    assert not row_of(tf_wu_shard.estimate(SHAPES, "adam", 2)).report.left_alone
    given = tf_wu_shard.ShardingOptions(min_elements=10**6)
    estimate = tf_wu_shard.estimate(SHAPES, "adam", 2, options=given)
    assert not row_of(estimate).report.variables
    assert tf_wu_shard.reports() == ()


def test_frozen_layers_and_the_optimizer_stay_as_they_are() -> None:
    model = net()
    model.get_layer("inner").trainable = False
    optimizer = k.Adam(0.5)
    estimate = tf_wu_shard.estimate(model, optimizer, 2)
    assert estimate.other_bytes == 4 * (48 * 80 + 80)
    assert estimate.variables == 5
    assert not optimizer.built
    assert len(optimizer.variables) == 2


def test_nothing_is_allocated() -> None:
    # 4 TB of slots.
    estimate = tf_wu_shard.estimate({"kernel": (1_000_000, 500_000)}, "adam", [64, 1024])
    assert estimate.rows[0].slots.unsharded == 4 * 10**12


@pytest.mark.parametrize("replicas", [0, 1, True, 2.0, [], [2, 1]])
def test_numbers_of_replicas_that_share_nothing_are_refused(replicas: Any) -> None:
    with pytest.raises(OptionError, match=r"num_replicas|at least 2"):
        tf_wu_shard.estimate(SHAPES, "adam", replicas)


@pytest.mark.parametrize(
    ("model", "optimizer", "more", "reason"),
    [
        (SHAPES, "adamm", {}, "Keras has no optimizer 'adamm'"),
        (SHAPES, 3, {}, "its class or its name, not int"),
        (SHAPES, "lossscaleoptimizer", {}, "cannot be made"),
        (SHAPES, "adam", {"topology": "v5e:4x4"}, "v5e:4x4 has 16 replicas, not 2"),
        (SHAPES, "adam", {"topology": "v5e:3x3"}, "unknown topology"),
        (SHAPES, "adam", {"sparse": ["table"]}, "no trained weight is called table"),
        ({}, "adam", {}, "nothing is trained"),
        ({"w": (2, -1)}, "adam", {}, "is no shape"),
        ({"w": "2x2"}, "adam", {}, "is to be a shape"),
        ({"w": (2.5, 4)}, "adam", {}, "is to be a shape"),
        ({"w": ((2, 4), "int32")}, "adam", {}, "a weight of int32 has no gradient"),
        ({"w": ((2, 4), "string")}, "adam", {}, "a weight of string has no gradient"),
        ([(2, 2)], "adam", {}, "must be a built model of Keras 3, .* not builtins.list"),
        (keras.Sequential([keras.layers.Dense(2)]), "adam", {}, "is not built"),
    ],
)
def test_what_makes_no_sense_is_refused(
    model: Any, optimizer: Any, more: dict[str, Any], reason: str
) -> None:
    with pytest.raises(OptionError, match=reason):
        tf_wu_shard.estimate(model, optimizer, 2, **more)


class Branching(keras.optimizers.SGD):
    """Updates in a branch of its own."""

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        super_step = super().update_step
        keras.ops.cond(
            self.iterations > 3,
            lambda: super_step(gradient, variable, learning_rate),
            lambda: None,
        )


def test_an_update_in_a_branch_is_refused_and_not_guessed() -> None:
    with pytest.raises(OptionError, match="inside of a branch"):
        tf_wu_shard.estimate(SHAPES, Branching(0.1), 2)


def test_tpus_leave_weights_alone_of_a_type_that_none_of_them_reduces_to_shards() -> None:
    shapes = {"single": (128, 64), "double": ((128, 64), "float64")}
    (row,) = tf_wu_shard.estimate(shapes, "adam", 4, topology="v5e:2x2").rows
    assert [variable.name for variable in row.report.variables] == ["single"]
    (left,) = row.report.left_alone
    assert (left.name, left.reason) == (
        "double",
        "TPUs reduce no float64 to shards: XlaReduceScatter does not take it",
    )
    (row,) = tf_wu_shard.estimate(shapes, "adam", 4).rows
    assert len(row.report.variables) == 2
