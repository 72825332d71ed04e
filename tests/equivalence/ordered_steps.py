"""Random train steps of several weights, whose writes wait for each other in many ways."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
from hypothesis import strategies as draw

# A kind, and whom it concerns: numbers into what there is by then.
Instruction: TypeAlias = tuple[Any, ...]

_SHAPE = (24, 16)
_SMALL = (3,)
_VALUES: dict[str, Callable[..., tf.Tensor]] = {
    **{"sum": tf.add, "product": tf.multiply, "difference": tf.subtract, "larger": tf.maximum},
    "average": lambda a, b: 0.75 * a + 0.25 * b,
    "bounded": lambda a, b: tf.tanh(a / (tf.abs(b) + 0.5)),
}
_WRITES = ("assign", "assign_add", "assign_sub")


@dataclasses.dataclass(frozen=True)
class OrderedStep:
    """One train step, instruction by instruction.

    Attributes:
        weights: How many weights have gradients.
        averages: How many variables of the same shape have none.
        small: Whether there is a weight too small to be shared as well.
        instructions: What the step does behind its gradients.
    """

    weights: int
    averages: int
    small: bool
    instructions: tuple[Instruction, ...]


_ANY = draw.integers(0, 99)
_INSTRUCTIONS = draw.one_of(
    draw.tuples(draw.just("write"), draw.sampled_from(_WRITES), _ANY, _ANY),
    draw.tuples(draw.just("write"), draw.sampled_from(_WRITES), _ANY, _ANY),
    draw.tuples(draw.just("value"), draw.sampled_from(sorted(_VALUES)), _ANY, _ANY),
    draw.tuples(draw.just("value"), draw.sampled_from(sorted(_VALUES)), _ANY, _ANY),
    draw.tuples(draw.just("small"), _ANY),
    # From now on everything waits for these writes.
    draw.tuples(draw.just("wait"), draw.lists(_ANY, max_size=4)),
    draw.tuples(draw.just("gradients")),
)
ORDERED_STEPS = draw.builds(
    OrderedStep,
    weights=draw.integers(1, 3),
    averages=draw.integers(0, 3),
    small=draw.booleans(),
    instructions=draw.lists(_INSTRUCTIONS, min_size=2, max_size=20).map(tuple),
)


class _Replica:
    """What a replica does in one step."""

    def __init__(self, step: OrderedStep, variables: list[Any], row: tf.Tensor) -> None:
        self._step, self._row = step, row
        self._weights = variables[: step.weights]
        self._averages = variables[step.weights : step.weights + step.averages]
        self._small = variables[step.weights + step.averages :]
        self._values: list[tf.Tensor] = []
        self._gradients_of_small: list[tf.Tensor] = []
        self._writes: list[tf.Operation] = []

    def run(self) -> None:
        self._take_gradients()
        waits: list[tf.Operation] = []
        for kind, *operands in self._step.instructions:
            if kind == "wait":
                writes = self._writes
                waits = [writes[i % len(writes)] for i in operands[0] if writes]
                continue
            with tf.control_dependencies(waits):
                self._do(kind, operands)

    def _do(self, kind: str, operands: list[Any]) -> None:
        if kind == "gradients":
            self._take_gradients()
        elif kind == "value":
            name, one, other = operands
            there = [*self._values, *self._weights, *self._averages]
            # A variable is read now.
            a, b = (tf.convert_to_tensor(there[i % len(there)]) for i in (one, other))
            self._values.append(_VALUES[name](a, b))
        elif kind == "write":
            method, into, value = operands
            # Weights are written more often than what is kept beside them.
            there = [*self._weights, *self._weights, *self._averages]
            target = there[into % len(there)]
            written = 0.25 * tf.tanh(self._values[value % len(self._values)])
            self._writes.append(getattr(target, method)(written))
        elif self._small:
            own = self._gradients_of_small
            self._writes.append(self._small[0].assign_sub(own[operands[0] % len(own)]))

    def _take_gradients(self) -> None:
        trained = [*self._weights, *self._small]
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(tf.sin(v * self._row)) for v in trained])
        context = tf.distribute.get_replica_context()
        sums = context.all_reduce("SUM", tape.gradient(loss, trained))
        self._values += sums[: len(self._weights)]
        self._gradients_of_small += sums[len(self._weights) :]


def trained(step: OrderedStep, strategy: tf.distribute.Strategy) -> list[Any]:
    """Takes a step twice.

    Args:
        step: The step.
        strategy: Of two replicas: a sum of two is exact in any order.

    Returns:
        Its variables.
    """
    random = np.random.default_rng(3)
    shapes = [_SHAPE] * (step.weights + step.averages) + [_SMALL] * step.small
    with strategy.scope():
        variables = [
            tf.Variable(random.normal(size=shape).astype(np.float32), name=f"v{i}")
            for i, shape in enumerate(shapes)
        ]
    rows = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(0.5 + context.replica_id_in_sync_group)
    )

    @tf.function(autograph=False)
    def train(rows: Any) -> None:
        strategy.run(lambda row: _Replica(step, variables, row).run(), (rows,))

    train(rows)
    train(rows)
    return variables
