"""Any program of eager and traced accesses leaves a slot as it leaves an unsharded variable."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as draw

from tests.storage.slots import mirrored, shard, values_of
from tf_wu_shard.storage.sharded_slot import sharded_slot_of, unshard
from tf_wu_shard.tensorflow_private.distributed_variables import original_handle

Strategies = Callable[[int], tf.distribute.MirroredStrategy]

# A step changes a variable and returns what it read on the way.
Step = Callable[[tf.Variable, np.ndarray], list[tf.Tensor]]


def _in_replicas(variable: tf.Variable, body: Callable[[], tf.Tensor]) -> list[tf.Tensor]:
    strategy = variable.distribute_strategy
    return list(strategy.experimental_local_results(strategy.run(body)))


def _add_in_replicas(variable: tf.Variable, value: np.ndarray) -> list[tf.Tensor]:
    def body() -> tf.Tensor:
        variable.assign_add(value)
        return variable.read_value()

    return _in_replicas(variable, body)


def _write_twice_in_replicas(variable: tf.Variable, value: np.ndarray) -> list[tf.Tensor]:
    def body() -> tf.Tensor:
        variable.assign(variable * 0.5)
        variable.assign_sub(value)
        return variable * 1.0

    return _in_replicas(variable, body)


def _update(variable: tf.Variable, value: np.ndarray) -> list[tf.Tensor]:
    read: list[tf.Tensor] = []

    def body(component: tf.Variable) -> None:
        component.assign_add((value - component) * 0.25)
        read.append(component.read_value())

    variable.distribute_strategy.extended.update(variable, body, group=False)
    return read


def _traced(variable: tf.Variable, value: np.ndarray) -> list[tf.Tensor]:
    @tf.function
    def step() -> tf.Tensor:
        before = variable.read_value()
        variable.assign(before * 0.5 + value)
        return before

    return [step()]


_STEPS: dict[str, Step] = {
    "assign": lambda v, x: [v.assign(x)][:0],
    "assign_add": lambda v, x: [v.assign_add(x)][:0],
    "assign_sub": lambda v, x: [v.assign_sub(x)][:0],
    "add_in_replicas": _add_in_replicas,
    "write_twice_in_replicas": _write_twice_in_replicas,
    "update": _update,
    "traced": _traced,
}


def _reshard(variable: tf.Variable) -> None:
    slot = sharded_slot_of(original_handle(variable.values[0]))
    if slot is not None:
        unshard(slot)
    shard(variable)


@pytest.mark.parametrize("replicas", [2, 3])
@settings(max_examples=12, derandomize=True)
@given(
    shape=draw.sampled_from([(), (5,), (33, 3)]),
    steps=draw.lists(draw.sampled_from([*_STEPS, "reshard"]), min_size=1, max_size=6),
)
def test_a_program_runs_as_unsharded(
    strategy_of: Strategies, replicas: int, shape: tuple[int, ...], steps: list[str]
) -> None:
    strategy = strategy_of(replicas)
    plain, slot = (mirrored(strategy, values_of(shape)) for _ in range(2))
    shard(slot)
    for number, step in enumerate(steps):
        if step == "reshard":
            _reshard(slot)
            continue
        value = values_of(shape, seed=number)
        for one, other in zip(_STEPS[step](slot, value), _STEPS[step](plain, value), strict=True):
            np.testing.assert_array_equal(one, other)
        for component, reference in zip(slot.values, plain.values, strict=True):
            assert component.numpy().tobytes() == reference.numpy().tobytes()
