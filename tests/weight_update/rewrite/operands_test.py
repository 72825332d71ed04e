"""A shape that nothing proves is checked before a gradient travels, once for each replica."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import tensorflow as tf

from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.op import Value
from tf_wu_shard.step.reductions import EnsuredShape, GradientReduction
from tf_wu_shard.weight_update.rewrite.emission import Emission
from tf_wu_shard.weight_update.rewrite.operands import Operands

GRADIENTS = (Value("g0"), Value("g1"))
KNOWN = GradientReduction(0, GRADIENTS, (), 6, 1, 1, ())
OPEN = dataclasses.replace(KNOWN, key=1, ensured=EnsuredShape(GRADIENTS, (2, 3), "w"))


def emission() -> Emission:
    """Of two gradients on two devices."""
    view: Any = SimpleNamespace(producer=lambda value: SimpleNamespace(device=f"d{value.op[1]}"))
    builder = GraphBuilder(("g0", "g1"), lambda value: 1)
    none: Any = None
    return Emission(view, builder, none, none)


def test_a_shape_that_is_proved_is_taken_as_it_is() -> None:
    emitting = emission()
    assert Operands(emitting).of(KNOWN) == GRADIENTS
    assert emitting.builder.nodes == []


def test_one_that_is_not_is_checked_on_the_replicas_device_under_the_variables_name() -> None:
    emitting = emission()
    operands = Operands(emitting)
    found = operands.of(OPEN)
    assert operands.of(OPEN) == found
    checks = emitting.builder.nodes
    assert [(node.op, node.device, [*node.input]) for node in checks] == [
        ("EnsureShape", "d0", ["g0"]),
        ("EnsureShape", "d1", ["g1"]),
    ]
    assert [value.op for value in found] == [node.name for node in checks]
    for node in checks:
        assert "w" in node.name and "gradient_shape" in node.name
        assert tf.TensorShape(node.attr["shape"].shape) == (2, 3)
