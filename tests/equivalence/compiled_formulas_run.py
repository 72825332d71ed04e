"""Trains a weight by formulas that no optimizer has, unsharded and compiled, and compares bits.

    python -m tests.equivalence.compiled_formulas_run NAME ...

A name is one of `FORMULAS`, or a number, of which a random formula is drawn. What TensorFlow's
graph optimizer makes of a formula depends on all of it; compiled, it sees a part.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import tf_wu_shard
from tests.strategies import mirrored_strategy
from tf_wu_shard.config import FLAG, ShardingOptions

# From gradient, slot and weight to what the slot becomes.
Formula = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]

SHAPE = (96, 128)
STEPS = 3

FORMULAS: dict[str, Formula] = {
    "sum_of_sizes": lambda g, m, w: tf.abs(g) + tf.abs(w) + g,
    "sum_of_products": lambda g, m, w: g * 0.3 + w * 0.7 + g * g,
    "product_with_a_size": lambda g, m, w: 0.01 * w * tf.abs(g),
    "product_with_a_root": lambda g, m, w: w * (g - w) * tf.sqrt(tf.abs(g)) * 0.3,
    "quotient_in_a_product": lambda g, m, w: (g / 1.499) * tf.abs(w) * (g + 0.9),
    "product_with_the_slot": lambda g, m, w: tf.maximum(g, w) * m * (g - m) * 0.9 + w,
    "square_as_a_power": lambda g, m, w: tf.pow(tf.abs(g) - w, 2.0) + m,
    "integers": lambda g, m, w: m + tf.cast(tf.cast(g * 1e9, tf.int32), tf.float32) * 1e-9,
    "factor_that_is_a_term": lambda g, m, w: 0.01 * w * tf.math.rsqrt(tf.abs(g) + 1e-3) + 0.01 * w,
    "belief": lambda g, m, w: 0.9 * m + 0.1 * tf.square(g - m) + 1e-3 * tf.abs(w),
}

_UNARY: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "abs": tf.abs,
    "neg": tf.negative,
    "root": lambda x: tf.sqrt(tf.abs(x)),
    "square": tf.square,
    "sign": tf.sign,
    "floor": tf.floor,
    "clip": lambda x: tf.clip_by_value(x, -1.0, 1.0),
}
_BINARY: dict[str, Callable[[tf.Tensor, tf.Tensor], tf.Tensor]] = {
    "add": tf.add,
    "subtract": tf.subtract,
    "multiply": tf.multiply,
    "divide": lambda x, y: x / (tf.abs(y) + 0.5),
    "maximum": tf.maximum,
    "minimum": tf.minimum,
    "where": lambda x, y: tf.where(x > y, x, y * 0.5),
}

_SUMS = ("add", "subtract", "add")
_PRODUCTS = ("multiply", "multiply", "multiply", "divide", "maximum", "minimum", "where")


def random_formula(seed: int) -> Formula:
    """A formula of up to four ops in a row, with products and sums more often than others.

    No sum is a term of another one: three terms and more TensorFlow adds in an order of its own.
    """
    draw = np.random.default_rng(seed)

    def made(depth: int, in_sum: bool) -> Formula:
        if depth == 0 or draw.random() < 0.1:
            leaf, number = int(draw.integers(4)), float(draw.choice([0.1, 0.9, 2.0, -1.5, 0.999]))
            return lambda *given: (*given, tf.constant(number))[leaf]
        if draw.random() < 0.65:
            name = draw.choice(_PRODUCTS if in_sum else [*_PRODUCTS, *_SUMS])
            combine, in_sum = _BINARY[name], name in _SUMS
            one, other = made(depth - 1, in_sum), made(depth - 1, in_sum)
            return lambda *given: combine(one(*given), other(*given))
        name = draw.choice([*_UNARY])
        change, own = _UNARY[name], made(depth - 1, in_sum and name == "neg")
        return lambda *given: change(own(*given))

    name = draw.choice([*_PRODUCTS, *_SUMS])
    combine, formula = _BINARY[name], made(3, name in _SUMS)
    # It stays finite from step to step.
    return lambda g, m, w: tf.clip_by_value(combine(formula(g, m, w), g), -9.0, 9.0)


def trained(strategy: tf.distribute.Strategy, formula: Formula) -> list[np.ndarray]:
    """The weight and its slot after some steps, of both replicas."""
    draw = np.random.default_rng(5)
    inputs = tf.constant(draw.normal(size=SHAPE), tf.float32)
    with strategy.scope():
        weight = tf.Variable(tf.constant(draw.normal(size=SHAPE), tf.float32))
        slot = tf.Variable(tf.constant(draw.normal(size=SHAPE), tf.float32), trainable=False)

    def update(_: Any, gradient: Any) -> None:
        write = strategy.extended.update
        write(slot, lambda m, g, w: m.assign(formula(g, m, w)), (gradient, weight.read_value()))
        write(weight, lambda w, m: w.assign_sub(0.01 * m), (slot.read_value(),))

    def replica() -> None:
        context = tf.distribute.get_replica_context()
        # Any function of the weight does for a gradient.
        gradient = context.all_reduce("SUM", tf.sin(inputs * weight.read_value()))
        context.merge_call(update, (gradient,))

    @tf.function
    def step() -> None:
        strategy.run(replica)

    for _ in range(STEPS):
        step()
    return [part.numpy() for variable in (weight, slot) for part in variable.values]


def compared(strategy: tf.distribute.Strategy, formula: Formula) -> dict[str, Any]:
    """How many elements differ, and what the report says."""
    options = ShardingOptions(min_elements=1, min_step_elements=1, compile_update="exact")
    runs = []
    for flag in (False, options):
        tf.config.optimizer.set_experimental_options({FLAG: flag})
        tf_wu_shard.clear_reports()
        runs.append(trained(strategy, formula))
    (report,) = tf_wu_shard.reports()
    whole, shared = runs
    # NaNs are equal, whichever they are.
    alike = (
        (a.view(np.int32) == b.view(np.int32)) | (np.isnan(a) & np.isnan(b))
        for a, b in zip(whole, shared, strict=True)
    )
    return {
        "apart": sum(int(np.sum(~same)) for same in alike),
        "sharded": len(report.variables),
        # A random formula may yield zero, whatever it is given.
        "moved": bool(np.any(whole[-1])),
        "open": [variable.open_because for variable in report.variables],
    }


def main() -> None:
    strategy = mirrored_strategy()
    names = sys.argv[1:]
    formulas = {n: FORMULAS[n] if n in FORMULAS else random_formula(int(n)) for n in names}
    found = {name: compared(strategy, formula) for name, formula in formulas.items()}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
