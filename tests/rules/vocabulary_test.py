"""The rules know every op that an optimizer puts between a reduced gradient and its writes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import keras
import pytest
import tensorflow as tf

from tests.equivalence.norm_optimizers import AdamWeightDecay, Lamb, Lars
from tf_wu_shard.rules.registry import family_of
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.rules.writes import WRITES

k = keras.optimizers

# They wrap other optimizers; what they put into an update is around it, not in it.
WRAPPERS = {"LossScaleOptimizer", "MultiOptimizer", "Optimizer"}

CLASSES: dict[str, Callable[..., Any]] = {
    name: made
    for name, made in vars(k).items()
    if inspect.isclass(made) and issubclass(made, k.Optimizer) and name not in WRAPPERS
}

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "clipnorm": {"clipnorm": 0.1},
    "clipvalue": {"clipvalue": 0.1},
    "global_clipnorm": {"global_clipnorm": 0.1},
    "weight_decay": {"weight_decay": 0.1},
    "ema": {"use_ema": True},
}

MORE: dict[str, Callable[[], Any]] = {
    "SGD momentum": lambda: k.SGD(momentum=0.9),
    "SGD nesterov": lambda: k.SGD(momentum=0.9, nesterov=True),
    "Adam amsgrad": lambda: k.Adam(amsgrad=True),
    "RMSprop centered": lambda: k.RMSprop(momentum=0.9, centered=True),
    "AdamWeightDecay": AdamWeightDecay,
    "LAMB": lambda: Lamb(learning_rate=0.01),
    "LARS": lambda: Lars(learning_rate=0.01),
}

# What has no rule: an update with one of these ops is left to one replica, or refused by name.
MATRIX_PRODUCTS = {"Transpose", "MatMul"}
REFUSED = {"Muon": MATRIX_PRODUCTS}


def ops_of_update(optimizer: Any, shape: tuple[int, ...]) -> set[str]:
    """The types of the ops between a gradient, or a slot, and what is written with it."""
    weight = keras.Variable(tf.ones(shape), name="kernel")
    optimizer.build([weight])

    @tf.function(autograph=False, input_signature=[tf.TensorSpec(shape)])
    def apply(gradient: tf.Tensor) -> None:
        optimizer.apply([gradient])

    graph = apply.get_concrete_function().graph
    # An update goes on from the slots that it wrote. What follows a scalar is the same everywhere.
    reads = [op.outputs[0] for op in graph.get_operations() if op.type == READ]
    stack = [graph.inputs[0], *(read for read in reads if read.shape == shape)]
    seen: set[str] = set()
    while stack:
        for op in stack.pop().consumers():
            if op.name not in seen:
                seen.add(op.name)
                stack += [output for output in op.outputs if output.shape != ()]
    return {graph.get_operation_by_name(name).type for name in seen} - {"NoOp"}


def unknown(optimizer: Any, shape: tuple[int, ...] = (6, 8)) -> set[str]:
    found = ops_of_update(optimizer, shape)
    assert found & {*WRITES}, "nothing was written"
    return {t for t in found if family_of(t) is None} - {*WRITES}


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_every_op_of_a_keras_optimizer_has_a_rule_or_a_known_refusal(name: str) -> None:
    made = CLASSES[name]
    # Keras clips what it is about to sum, before the reduction.
    assert unknown(made()) == REFUSED.get(name, set())
    for option in ("weight_decay", "ema"):
        assert unknown(made(**OPTIONS[option])) == REFUSED.get(name, set()), option
    assert unknown(made(), (8,)) <= REFUSED.get(name, set())


@pytest.mark.parametrize("name", sorted(MORE))
def test_every_op_of_these_has_a_rule_or_a_known_refusal(name: str) -> None:
    assert unknown(MORE[name]()) == REFUSED.get(name, set())


@pytest.mark.parametrize("option", ["clipnorm", "clipvalue", "global_clipnorm"])
def test_every_op_of_clipping_has_a_rule(option: str) -> None:
    assert unknown(k.Adam(**OPTIONS[option])) == set()
