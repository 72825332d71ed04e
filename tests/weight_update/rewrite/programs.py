"""Random update programs: what an optimizer could do with a gradient, a weight and two slots."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
from hypothesis import strategies as draw

from tf_wu_shard.config import FLAG, ShardingOptions

# ("leaf", name) | (op, operand, ...)
Expression: TypeAlias = tuple[Any, ...]

_UNARY: dict[str, Callable[..., tf.Tensor]] = {
    **{"Abs": tf.abs, "Neg": tf.negative, "Sign": tf.sign, "Square": tf.square, "Exp": tf.exp},
    **{"Sqrt": tf.sqrt, "Rsqrt": tf.math.rsqrt, "Log1p": tf.math.log1p, "Tanh": tf.tanh},
    **{"Sigmoid": tf.sigmoid, "Floor": tf.floor, "Relu": tf.nn.relu, "Erf": tf.math.erf},
    **{"Reciprocal": tf.math.reciprocal, "Softplus": tf.math.softplus, "Sin": tf.sin},
    "ZerosLike": lambda x: tf.raw_ops.ZerosLike(x=x),
}
_BINARY: dict[str, Callable[..., tf.Tensor]] = {
    **{"AddV2": tf.add, "Sub": tf.subtract, "Mul": tf.multiply, "RealDiv": tf.divide},
    **{"Maximum": tf.maximum, "Minimum": tf.minimum, "Pow": tf.pow, "Atan2": tf.atan2},
    **{"SquaredDifference": tf.math.squared_difference, "DivNoNan": tf.math.divide_no_nan},
    **{"MulNoNan": tf.math.multiply_no_nan, "Xdivy": tf.math.xdivy, "FloorMod": tf.math.floormod},
}
_COMPARE: dict[str, Callable[..., tf.Tensor]] = {
    **{"Less": tf.less, "LessEqual": tf.less_equal, "Greater": tf.greater, "Equal": tf.equal},
}
_LEAVES = ("g", "w", "m", "v", "whole", "scalar", "one")
_METHODS = ("assign", "assign_add", "assign_sub")


def _grown(children: draw.SearchStrategy[Expression]) -> draw.SearchStrategy[Expression]:
    return draw.one_of(
        draw.tuples(draw.sampled_from(sorted(_UNARY)), children),
        draw.tuples(draw.sampled_from(sorted(_BINARY)), children, children),
        draw.tuples(
            *(draw.just("In"), draw.sampled_from(["float64", "float16", "bfloat16"])),
            *(draw.sampled_from(sorted(_UNARY)), children),
        ),
        draw.tuples(draw.just("ToInt"), children),
        draw.tuples(
            *(draw.just("SelectV2"), draw.sampled_from(sorted(_COMPARE))),
            *(children, children, children, children),
        ),
        draw.tuples(draw.just("Clip"), children),
    )


EXPRESSIONS = draw.recursive(
    draw.tuples(draw.just("leaf"), draw.sampled_from(_LEAVES)), _grown, max_leaves=5
)


@dataclasses.dataclass(frozen=True)
class Program:
    """One training step: writes of the weight w and the slots m and v, in order.

    Attributes:
        shape: The shape of the gradient, the weight and the slots.
        replicas: How many replicas compute gradients.
        writes: For each write, the variable, how it is written, and with what.
        looks: Whether the forward pass looks at the weight.
        seed: Seed of all values.
    """

    shape: tuple[int, ...]
    replicas: int
    writes: tuple[tuple[str, str, Expression], ...]
    looks: bool
    seed: int


def _with_gradient(expression: Expression, method: str, variable: str) -> tuple[Any, ...]:
    return (variable, method, ("AddV2", ("leaf", "g"), expression))


_ANY_WRITE = draw.tuples(draw.sampled_from("wmv"), draw.sampled_from(_METHODS), EXPRESSIONS)

_SMALL = ((), (1,), (3,), (7, 1), (0,), (2, 0), (13,))
_LARGE = ((31,), (16,), (2, 16), (67,), (8, 8), (5, 29))
SHAPES = draw.sampled_from([*_SMALL, *_LARGE])

PROGRAMS = draw.builds(
    Program,
    shape=SHAPES,
    replicas=draw.sampled_from([2, 2, 3, 3, 4, 5, 7, 8]),
    writes=draw.tuples(
        draw.builds(_with_gradient, EXPRESSIONS, draw.sampled_from(_METHODS), draw.just("m")),
        draw.lists(_ANY_WRITE, max_size=3),
        draw.builds(_with_gradient, EXPRESSIONS, draw.sampled_from(_METHODS), draw.just("w")),
    ).map(lambda parts: (parts[0], *parts[1], parts[2])),
    looks=draw.booleans(),
    seed=draw.integers(0, 99),
)


def evaluated(expression: Expression, leaves: Mapping[str, Callable[[], tf.Tensor]]) -> tf.Tensor:
    """The value of an expression; leaves are read where they stand."""
    kind, *operands = expression
    if kind == "leaf":
        return leaves[operands[0]]()
    if kind == "In":
        # An op in another element type.
        value = tf.cast(evaluated(operands[2], leaves), operands[0])
        return tf.cast(_UNARY[operands[1]](value), tf.float32)
    if kind == "ToInt":
        value = evaluated(operands[0], leaves)
        # Out of range and NaN, a cast to an integer is undefined: another value each time.
        value = tf.where(tf.abs(value) < 1e6, value, tf.zeros_like(value))
        return tf.cast(tf.cast(value, tf.int32), tf.float32)
    if kind == "SelectV2":
        a, b, c, d = (evaluated(o, leaves) for o in operands[1:])
        return tf.where(_COMPARE[operands[0]](a, b), c, d)
    if kind == "Clip":
        return tf.clip_by_value(evaluated(operands[0], leaves), -1.5, 2.0)
    function = _UNARY.get(kind) or _BINARY[kind]
    return function(*(evaluated(o, leaves) for o in operands))


class Run:
    """A program's variables and its step under one strategy."""

    def __init__(self, program: Program, strategy: tf.distribute.Strategy) -> None:
        """Makes the variables and traces nothing yet."""
        random = np.random.default_rng(program.seed)
        self._program, self._strategy = program, strategy
        shape = program.shape
        with strategy.scope():
            self.variables = {
                name: tf.Variable(_values(random, shape), trainable=name == "w", name=name)
                for name in "wmv"
            }
            self._whole = tf.Variable(_values(random, shape), trainable=False, name="whole")
            self._scalar = tf.Variable(np.float32(0.75), trainable=False, name="scalar")
        self._one = np.full((1,) * min(1, len(shape)), 1.25, np.float32)
        # Multiples of 1/8 within bounds: their sums are exact in any order.
        self._gradients = [
            (random.integers(-64, 64, shape) / 8).astype(np.float32)
            for _ in range(program.replicas)
        ]

    def step(self) -> Callable[[], Any]:
        """The step, not traced yet."""
        strategy, program = self._strategy, self._program

        def gradient(own: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            seen = self.variables["w"] * 1.0 if program.looks else own
            return own * 1.0, tf.reduce_sum(seen)

        def update(component: tf.Variable, reduced: tf.Tensor) -> None:
            self._update(component, reduced)

        @tf.function(autograph=False)
        def step(own: Any) -> Any:
            raw, loss = strategy.run(gradient, (own,))
            weight = self.variables["w"]
            (reduced,) = strategy.extended.batch_reduce_to(
                tf.distribute.ReduceOp.SUM, [(raw, weight)]
            )
            strategy.extended.update(weight, update, args=(reduced,), group=False)
            return loss

        own = strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(self._gradients[context.replica_id_in_sync_group])
        )
        return lambda: step(own)

    def _update(self, component: tf.Variable, reduced: tf.Tensor) -> None:
        targets = {**self.variables, "w": component}
        leaves: dict[str, Callable[[], tf.Tensor]] = {
            **{name: targets[name].read_value for name in "wmv"},
            "g": lambda: reduced,
            "whole": self._whole.read_value,
            "scalar": self._scalar.read_value,
            "one": lambda: tf.constant(self._one),
        }
        for name, method, expression in self._program.writes:
            value = evaluated(expression, leaves)
            if value.shape != component.shape:
                value = tf.broadcast_to(value, self._program.shape)
            getattr(targets[name], method)(value)


def _values(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.asarray(random.normal(size=shape), np.float32)


def outcome(
    program: Program, strategy: tf.distribute.Strategy, options: ShardingOptions | None
) -> dict[str, list[np.ndarray]]:
    """Every component of every variable after two steps.

    Grappler's arithmetic optimizer is off: it adds the terms of a sum in another order where it
    sees that they have one shape, and it sees other sums in the whole graph, where an outside
    tensor is added before it is cut.
    """
    set_flag(options)
    tf.config.optimizer.set_experimental_options({"arithmetic_optimization": False})
    try:
        run = Run(program, strategy)
        step = run.step()
        step()
        step()
        return {
            name: [component.numpy() for component in variable.values]
            for name, variable in run.variables.items()
        }
    finally:
        set_flag(None)
        tf.config.optimizer.set_experimental_options({"arithmetic_optimization": None})


def set_flag(options: ShardingOptions | None) -> None:
    """Turns weight-update sharding on or off."""
    tf.config.optimizer.set_experimental_options({FLAG: options or False})


def same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two tensors agree bit for bit, any NaN being like any other."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    nan = np.isnan(one)
    return bool(
        np.array_equal(nan, np.isnan(other))
        and np.where(nan, 0, one).tobytes() == np.where(nan, 0, other).tobytes()
    )
