"""Random programs that may move the copies of a weight apart around a synchronous step.

Functions of the host write a weight, its slot and a variable that the update reads: with what each
replica has of its own, with what all share, in part, through functions that are handed a variable,
replica by replica in a loop of their own. They come before the step is traced, or after it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

SHAPE = (6, 4)

# What one replica computes with: itself, what it is handed of its own, and what all are handed.
Given = tuple[int, tf.Tensor, tf.Tensor]
Expression = Callable[[Given], tf.Tensor]
Statement = Callable[[Given], Any]

# A function is run before the step, only traced then, or comes after it; some run eagerly.
MOMENTS = ("run before", "traced before", *("after",) * 4, "eager before")


class Function(NamedTuple):
    """A function of the host.

    Attributes:
        moment: When it comes, see `MOMENTS`.
        call: Runs it with what each replica has of its own, and with what all share.
    """

    moment: str
    call: Any


class Program:
    """A weight, its slot, a variable that its update may read, a counter, and what is done."""

    def __init__(self, strategy: tf.distribute.Strategy, seed: int) -> None:
        self.strategy = strategy
        self.replicas = range(strategy.num_replicas_in_sync)
        start = np.arange(24, dtype=np.float32).reshape(SHAPE)
        with strategy.scope():
            self.variables = [
                tf.Variable(start / (8 + number), name=name, trainable=name == "weight")
                for number, name in enumerate(("weight", "slot", "read"))
            ]
        self.count = tf.Variable(1.0)
        self.own = strategy.experimental_distribute_values_from_function(
            lambda context: tf.fill(SHAPE, 1.0 + context.replica_id_in_sync_group)
        )
        # Too large to be a constant in what captures it.
        self.shared = tf.reshape(tf.range(48.0) / 48.0, (12, 4))
        self._random = random.Random(seed)
        scale = self._random.choice((0.25, 0.5))
        self._pure = tf.function(lambda value: scale * value + 1.0)
        self._writing = [
            tf.function(lambda one, value: one.assign_add(scale * value)),
            tf.function(lambda one, value: one[1:4].assign(scale * value[1:4])),
        ]
        reads = self._random.random() < 0.5

        def step(own: tf.Tensor) -> None:
            strategy.run(self._train, (own, reads))

        self.step = tf.function(step)
        self.functions = [self._function() for _ in range(self._random.randint(1, 3))]

    @property
    def state(self) -> list[np.ndarray]:
        """What all copies of all variables hold."""
        return [one.numpy() for variable in self.variables for one in variable.values]

    def run(self) -> list[list[np.ndarray]]:
        """What all hold after each thing that is done."""
        for moment, call in self.functions:
            if moment == "traced before":
                call.get_concrete_function(self.own, self.shared)
            elif moment != "after":
                call(self.own, self.shared)
        seen = [self.state]
        self.step(self.own)
        for moment, call in self.functions:
            # What eager code does between two steps is seen by nobody.
            if moment != "eager before":
                call(self.own, self.shared)
            seen.append(self.state)
            self.step(self.own)
            seen.append(self.state)
        return seen

    def _train(self, own: tf.Tensor, reads: bool) -> None:
        weight, slot, read = self.variables
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.tanh(weight * own))
        context = tf.distribute.get_replica_context()
        slot.assign(0.5 * slot + context.all_reduce("sum", tape.gradient(loss, weight)))
        weight.assign_sub(0.25 * slot * (1.0 + 0.01 * read) if reads else 0.25 * slot)

    def _function(self) -> Function:
        made = (self._of_replicas, self._of_replicas, self._by_hand, self._of_update, self._of_all)
        make = self._random.choice(made)
        moment = self._random.choice(MOMENTS)
        if make == self._of_replicas and moment == "eager before":
            moment = "run before"
        call = make()
        return Function(moment, call if moment == "eager before" else tf.function(call))

    def _of_replicas(self) -> Callable[..., Any]:
        """What each replica does."""
        statements = [self._statement() for _ in range(self._random.randint(1, 3))]

        def replica(own: tf.Tensor, shared: tf.Tensor) -> None:
            number = tf.distribute.get_replica_context().replica_id_in_sync_group
            for statement in statements:
                statement((int(tf.get_static_value(number)), own, shared))

        return lambda own, shared: self.strategy.run(replica, (own, shared))

    def _by_hand(self) -> Callable[..., Any]:
        """Copy by copy, or not all of them."""
        variable, first = self._random.choice(self.variables), self._random.choice((0, 0, 1))
        kind = self._random.choice(("shared", "own", "count", "first"))

        def call(own: Any, shared: tf.Tensor) -> None:
            for number in self.replicas[first:]:
                value = own.values[number] if kind == "own" else shared[:6]
                if kind == "first":
                    value = tf.identity(variable.values[0])
                elif kind == "count":
                    value = self.count.assign_add(1.0) * tf.ones(SHAPE)
                variable.values[number].assign_add(0.1 * value)

        return call

    def _of_update(self) -> Callable[..., Any]:
        """As `strategy.extended.update` does."""
        variable, is_own = self._random.choice(self.variables), self._random.random() < 0.5
        plain = tf.autograph.experimental.do_not_convert(lambda one, value: one.assign_add(value))
        update = self._random.choice((plain, *self._writing))
        return lambda own, shared: self.strategy.extended.update(
            variable, update, (own if is_own else shared[:6],)
        )

    def _of_all(self) -> Callable[..., Any]:
        """What all copies are assigned together."""
        variable, other = self._random.choice(self.variables), self._random.choice(self.variables)
        return lambda own, shared: variable.assign(0.5 * other + shared[:6])

    def _statement(self) -> Statement:
        kind = self._random.choice(("assign", "add", "part", "count", "handed", "called"))
        variable, value = self._random.choice(self.variables), self._expression(2)
        if kind == "assign":
            return lambda given: variable.assign(0.5 * value(given))
        if kind == "add":
            return lambda given: variable.assign_add(0.1 * value(given))
        if kind == "part":
            begin, end = sorted(self._random.sample(range(6), 2))
            return lambda given: variable[begin:end].assign(value(given)[begin:end])
        if kind == "count":
            return lambda given: self.count.assign_add(1.0)
        if kind == "called":
            return lambda given: variable.assign(self._pure(value(given)))
        writing = self._random.choice(self._writing)
        return lambda given: writing(variable.values[given[0]], 0.1 * value(given))

    def _expression(self, depth: int) -> Expression:
        leaves = ("sum", "shared", "constant", "variable", "own", "count", "part")
        weights = (4, 3, 1, 2, 1, 1, 1)
        inner = ("branch", "call", "difference", "loop") if depth else ()
        (kind,) = self._random.choices((*leaves, *inner), (*weights, *(2 for _ in inner)))
        first, other = (
            (self._expression(depth - 1), self._expression(depth - 1)) if depth else (_own, _own)
        )
        variable, constant = self._random.choice(self.variables), self._random.random()
        if kind == "sum":
            return lambda given: _mean(first(given))
        if kind == "loop":
            return lambda given: _looped(first(given))
        simple: dict[str, Expression] = {
            "shared": lambda given: given[2][:6],
            "constant": lambda given: tf.fill(SHAPE, constant),
            "variable": lambda given: tf.identity(variable),
            "own": _own,
            "count": lambda given: self.count * tf.ones(SHAPE),
            "part": lambda given: tf.split(given[2], 2)[given[0] % 2],
            "branch": lambda given: _either(given[2], first(given), other(given)),
            "call": lambda given: self._pure(first(given)),
            "difference": lambda given: first(given) - other(given),
        }
        return simple[kind]


def _own(given: Given) -> tf.Tensor:
    return given[1]


def _mean(value: tf.Tensor) -> Any:
    return tf.distribute.get_replica_context().all_reduce("mean", tf.identity(value))


def _looped(value: tf.Tensor) -> Any:
    return tf.while_loop(lambda i, _: i < 2, lambda i, v: (i + 1, 0.5 * v + 1.0), (0, value))[1]


def _either(shared: tf.Tensor, first: tf.Tensor, other: tf.Tensor) -> Any:
    return tf.cond(tf.reduce_sum(shared) > 3.0, lambda: first, lambda: other)
