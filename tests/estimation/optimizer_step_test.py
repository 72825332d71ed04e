"""An optimizer's update is traced with names and shapes alone, whatever way it was named."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_wu_shard.errors import OptionError
from tf_wu_shard.estimation.optimizer_step import makes_dense, optimizer_of, trace
from tf_wu_shard.estimation.weights import TrainedWeight, number_of
from tf_wu_shard.grounds.dialect import CarriedSlices, Gathered

# No machine has the memory for it.
LARGE = TrainedWeight("layer/kernel", (1 << 20, 1 << 20), "float32", False, 1)
BIAS = dataclasses.replace(LARGE, name="layer/bias", shape=(1 << 20,))


@pytest.mark.parametrize(
    "wanted",
    [
        lambda: "adam",
        lambda: "Adam",
        lambda: keras.optimizers.Adam,
        keras.optimizers.Adam,
        lambda: keras.optimizers.serialize(keras.optimizers.Adam(0.5)),
    ],
    ids=("lower case", "name", "class", "object", "configuration"),
)
def test_an_optimizer_is_named_in_many_ways(wanted: Callable[[], Any]) -> None:
    assert type(optimizer_of(wanted())) is keras.optimizers.Adam


def test_underscores_and_capitals_of_a_name_do_not_matter() -> None:
    assert type(optimizer_of("schedule_free_adamw")) is type(optimizer_of("ScheduleFreeAdamW"))


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("adamm", "it has adadelta"),
        ("loss_scale_optimizer", "cannot be made"),
        ({"class_name": "Nothing", "config": {}}, "'Nothing' is no optimizer"),
        ({"class_name": "Dense", "config": {"units": 3}}, "'Dense' is no optimizer"),
        ({"class_name": "Adam", "config": {"rate": 3}}, "not recognized"),
        ({}, "without a class_name"),
        (3, "its class or its name, not int"),
        (keras.layers.Dense, "not type"),
        # That it is another package's shows in where it is from.
        (tf.compat.v1.train.AdamOptimizer(), r"not tensorflow\..*\.AdamOptimizer"),
    ],
)
def test_what_is_none_is_said_to_be_none(wanted: Any, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        optimizer_of(wanted)


def test_slots_have_the_names_and_shapes_that_keras_gives_them() -> None:
    step = trace(keras.optimizers.Adam(), [LARGE, BIAS])
    assert step.name == "Adam"
    assert sorted((slot.shape, slot.is_slot) for slot in step.slots) == sorted(
        [(LARGE.shape, True), (BIAS.shape, True)] * 2
    )
    assert len({slot.key for slot in step.slots}) == 4
    assert all("momentum" in s.key or "velocity" in s.key for s in step.slots)
    assert {dtype for _, dtype in step.counters} == {"int64", "float32"}
    assert not step.accumulators


def test_each_gradient_is_an_input_and_each_variable_has_its_name() -> None:
    step = trace(keras.optimizers.SGD(), [LARGE, BIAS])
    inputs = [one.operands[0].op for one in step.gradients]
    assert len({*inputs}) == 2 and all(step.view.ops[n].type == "Placeholder" for n in inputs)
    trained = {ref.key for ref in step.view.variables.values() if ref.trainable}
    assert trained == {LARGE.name, BIAS.name}


def test_a_sparse_gradient_has_three_parts() -> None:
    table = dataclasses.replace(LARGE, name="table", shape=(100, 8), sparse=True)
    step = trace(keras.optimizers.Adagrad(), [table])
    kinds = [one.gathered for one in step.gradients if isinstance(one, CarriedSlices)]
    assert kinds == [Gathered.VALUES, Gathered.ROWS, Gathered.SHAPE]


def test_gradients_that_each_replica_adds_up_are_kept_for_every_weight() -> None:
    optimizer = keras.optimizers.SGD(gradient_accumulation_steps=3)
    overwritten = dataclasses.replace(BIAS, overwritten=True)
    step = trace(optimizer, [LARGE, overwritten])
    assert [a.shape for a in step.accumulators] == [LARGE.shape] and not step.slots
    # The optimizer that was handed over is as it was.
    assert optimizer.gradient_accumulation_steps == 3 and not optimizer.built


def test_names_that_are_no_scopes_and_two_alike_are_told_apart() -> None:
    odd = dataclasses.replace(BIAS, name="-a b/_c:0")
    step = trace(keras.optimizers.SGD(momentum=0.9), [odd, dataclasses.replace(odd, name="a/")])
    assert len({slot.key for slot in step.slots}) == 2
    assert "-a b/_c:0" in {ref.key for ref in step.view.variables.values()}


def test_a_dynamic_loss_scale_has_the_name_of_both() -> None:
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD())
    assert trace(optimizer, [BIAS]).name == "LossScaleOptimizer of SGD"
    assert makes_dense(optimizer)
    assert makes_dense(keras.optimizers.SGD(global_clipnorm=1.0))
    assert not makes_dense(keras.optimizers.SGD(clipnorm=1.0))


class Unlike(keras.optimizers.SGD):
    """Cannot be made of what `get_config` returns."""

    def __init__(self, wanted: float) -> None:
        super().__init__(wanted)


class Branching(keras.optimizers.SGD):
    """Updates in a branch."""

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        moved = super().update_step
        tf.cond(
            tf.reduce_all(tf.math.is_finite(gradient)),
            lambda: [moved(gradient, variable, learning_rate), tf.constant(0)][1:],
            lambda: [tf.constant(0)],
        )


@pytest.mark.parametrize(
    ("optimizer", "said"),
    [(Unlike, "cannot be made from its get_config"), (Branching, "inside of a branch")],
)
def test_what_cannot_be_traced_so_says_why(optimizer: Callable[[float], Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        trace(optimizer(0.1), [BIAS])


def test_a_number_stands_for_a_type() -> None:
    assert number_of("bfloat16") == tf.bfloat16.as_datatype_enum
    assert np.dtype(tf.as_dtype(number_of("float64")).as_numpy_dtype) == np.float64
