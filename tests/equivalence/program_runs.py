"""Runs random programs: what each kind of statement and expression does."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tests.equivalence.nested_scenarios import Left
from tests.equivalence.random_programs import Block, Expression, Place, Program, Statement, Step


def run(program: Program, strategy: tf.distribute.Strategy) -> Left:
    """Takes a program from its beginning to its end.

    Args:
        program: The program.
        strategy: Makes its variables and runs its steps.

    Returns:
        All variables, and what its actions saw.
    """
    return _Run(program, strategy).left()


class _Values:
    """What expressions are worth.

    Attributes:
        variables: The variables, by place.
        count: How many steps have said that they are taken.
    """

    def __init__(self, program: Program, strategy: tf.distribute.Strategy) -> None:
        self._shapes = program.shapes
        self._dtype = tf.as_dtype(program.dtype)
        self.variables: dict[Place, Any] = {}
        with strategy.scope():
            for weight, (shape, slots) in enumerate(
                zip(program.shapes, program.slots, strict=True)
            ):
                numbers = tf.range(float(np.prod(shape))) * (1 + weight)
                waves = tf.cast(tf.reshape(tf.sin(numbers), shape), self._dtype)
                self.variables[weight, 0] = tf.Variable(waves)
                for slot in range(1, slots + 1):
                    started = tf.fill(shape, tf.cast(0.1 * slot, self._dtype))
                    self.variables[weight, slot] = tf.Variable(started, trainable=False)
            self.count = tf.Variable(0.0, trainable=False)

    def of(self, expression: Expression, gradients: dict[int, tf.Tensor]) -> tf.Tensor:
        """The value of an expression, of a weight's shape or a scalar."""
        kind, *operands = expression
        if kind == "gradient":
            return gradients[operands[0]]
        if kind == "read":
            return tf.convert_to_tensor(self.variables[operands[0]])
        if kind == "number":
            return self._number(operands[0])
        if kind == "turn":
            return tf.cast(tf.sin(tf.convert_to_tensor(self.count)), self._dtype)
        if kind == "times":
            return self._number(operands[0]) * self.of(operands[1], gradients)
        return self._computed(kind, *(self.of(operand, gradients) for operand in operands))

    def filled(self, weight: int, value: tf.Tensor) -> tf.Tensor:
        """A value in a weight's shape."""
        return value + tf.zeros(self._shapes[weight], self._dtype)

    def truth(self, condition: Expression, gradients: dict[int, tf.Tensor]) -> tf.Tensor:
        """Whether a condition holds, the same on all replicas."""
        kind, *operands = condition
        if kind == "is_finite":
            return tf.reduce_all(tf.math.is_finite(gradients[operands[0]]))
        if kind == "is_big":
            return tf.cast(tf.reduce_max(self.variables[operands[0]]), tf.float32) > 0.3
        count = tf.convert_to_tensor(self.count)
        if kind in ("is_true", "is_false"):
            return count > -1.0 if kind == "is_true" else count < -1.0
        return tf.equal(tf.math.floormod(count, 2.0), 0.0 if kind == "is_even" else 1.0)

    def _number(self, number: float) -> tf.Tensor:
        return tf.cast(number, self._dtype)

    def _computed(self, kind: str, a: tf.Tensor, *others: tf.Tensor) -> tf.Tensor:
        """What an op makes of values; of large ones none that is too large."""
        number = self._number
        of_one: dict[str, Callable[[], tf.Tensor]] = {
            "square": lambda: a * a,
            "tanh": lambda: tf.tanh(a),
            "sign": lambda: tf.sign(a),
            "root": lambda: tf.sqrt(tf.abs(a) + number(0.01)),
            "clip": lambda: tf.clip_by_value(a, number(-0.5), number(0.5)),
            "round": lambda: tf.cast(tf.cast(a, tf.bfloat16), self._dtype),
            "reshape": lambda: tf.reshape(tf.tanh(tf.reshape(a, [-1])), a.shape),
            "flip": lambda: tf.reverse(a, [0]) if a.shape.rank else a,
            "cumulative": lambda: tf.cumsum(a, 0) * number(0.1) if a.shape.rank else a,
            "norm": lambda: a / (tf.norm(a) + number(1)),
            "total": lambda: a * tf.tanh(tf.reduce_sum(a)),
        }
        if kind in of_one:
            return of_one[kind]()
        (b,) = others
        of_two: dict[str, Callable[[], tf.Tensor]] = {
            "add": lambda: a + b,
            "sub": lambda: a - b,
            "mul": lambda: a * b,
            "div": lambda: a / (tf.sqrt(tf.abs(b)) + number(0.1)),
            "max": lambda: tf.maximum(a, b),
            "where": lambda: tf.where(a > b, a * number(0.5), b),
        }
        return of_two[kind]()


class _Run:
    """A program with its variables and functions.

    A statement returns what it saw, a float32 scalar.
    """

    def __init__(self, program: Program, strategy: tf.distribute.Strategy) -> None:
        self._program = program
        self._strategy = strategy
        self._values = _Values(program, strategy)
        self._steps = [tf.function(self._host_of(step)) for step in program.steps]
        self._functions = [tf.function(self._function_of(body)) for body in program.functions]
        self._files = self._written = ""

    def left(self) -> Left:
        """Does all actions."""
        with tempfile.TemporaryDirectory() as self._files:
            seen = [found for action in self._program.actions for found in self._acted(*action)]
        return Left([*self._values.variables.values(), self._values.count], seen)

    def _acted(self, kind: str, *operands: Any) -> list[np.ndarray]:
        """Does something eagerly, and says what it saw."""
        if kind in ("saved", "restored", "exported"):
            return self._filed(kind)
        (what, *factor) = operands
        if kind == "retraced":
            self._steps[what] = tf.function(self._host_of(self._program.steps[what]))
        if kind in ("step", "retraced"):
            return [self._steps[what]().numpy()]
        if kind == "function":
            return [self._functions[what]().numpy()]
        variable = self._values.variables[what]
        if kind == "shown":
            return [variable.numpy().astype(np.float32).sum(keepdims=True)]
        if kind == "copied":
            weight, number = what
            variable.assign(self._values.variables[weight, 0 if number else 1])
        else:
            variable.assign(tf.convert_to_tensor(variable) * tf.cast(factor[0], variable.dtype))
        return []

    def _filed(self, kind: str) -> list[np.ndarray]:
        """Writes all variables to a checkpoint, reads the last one, or exports them."""
        named = {f"at_{a}_{b}": own for (a, b), own in self._values.variables.items()}
        if kind == "exported":
            module, path = tf.Module(), tempfile.mkdtemp(dir=self._files)
            module.all = [*named.values()]
            tf.saved_model.save(module, path)
            loaded = tf.saved_model.load(path).all
            return [tf.cast(own, tf.float32).numpy() for own in loaded]
        checkpoint = tf.train.Checkpoint(**named)
        if kind == "saved":
            self._written = checkpoint.write(f"{tempfile.mkdtemp(dir=self._files)}/all")
        elif self._written:
            checkpoint.read(self._written).assert_consumed()
        return []

    def _function_of(self, body: Block) -> Callable[[], tf.Tensor]:
        def function() -> tf.Tensor:
            return self._done(body, {})

        return function

    def _host_of(self, step: Step) -> Callable[[], tf.Tensor]:
        """What the host does to run a step."""

        def replica() -> tf.Tensor:
            return self._done(step.replica, {})

        def everywhere() -> tf.Tensor:
            return self._strategy.reduce("SUM", self._strategy.run(replica), axis=None)

        def beside() -> tf.Tensor:
            return self._done(step.host, {})

        def host() -> tf.Tensor:
            seen = tf.constant(0.0)
            if step.wrap == "range":
                for _ in tf.range(2):
                    seen = seen * 0.5 + everywhere()
                return seen
            if step.wrap == "dataset":
                for _ in tf.data.Dataset.range(2):
                    seen = seen * 0.5 + everywhere()
                return seen
            if step.wrap == "while":
                turn = lambda n, seen: (n + 1, seen * 0.5 + everywhere())  # noqa: E731
                return tf.while_loop(lambda n, _: n < 2, turn, (0, seen))[1]
            if step.wrap == "branch":
                is_true = self._values.truth(("is_true",), {})
                return tf.cond(is_true, everywhere, lambda: tf.constant(0.0))
            if step.wrap == "either":
                return tf.cond(self._values.truth(("is_even",), {}), everywhere, beside)
            if step.wrap == "twice":
                return everywhere() + 0.5 * everywhere()
            return beside() + everywhere() + beside() if step.wrap == "between" else everywhere()

        return host

    def _done(self, body: Block, gradients: dict[int, tf.Tensor]) -> tf.Tensor:
        seen = tf.constant(0.0)
        for statement in body:
            seen = seen * 0.5 + self._seen_by(statement, gradients)
        return seen

    def _seen_by(self, statement: Statement, gradients: dict[int, tf.Tensor]) -> tf.Tensor:
        """Does a statement; some change the gradients that there are."""
        kind, *operands = statement
        values, nothing = self._values, tf.constant(0.0)
        if kind == "gradients":
            gradients.update(enumerate(self._gradients(operands[0])))
            return nothing
        if kind == "let":
            weight, condition, one, other = operands
            gradients[weight] = tf.cond(
                values.truth(condition, gradients),
                lambda: values.filled(weight, values.of(one, gradients)),
                lambda: values.filled(weight, values.of(other, gradients)),
            )
            return nothing
        if kind == "counted":
            values.count.assign_add(1.0)
            return nothing
        if kind == "write":
            place, method, written = operands
            value = values.filled(place[0], tf.tanh(values.of(written, gradients)))
            getattr(values.variables[place], method)(value)
            return nothing
        if kind == "merged":
            self._merged(*operands, gradients=gradients)
            return nothing
        if kind == "agreed":
            place, how = operands
            context = tf.distribute.get_replica_context()
            seen = tf.cast(tf.reduce_max(values.variables[place]), tf.float32)
            return context.all_reduce(how.upper(), self._own_factor() * seen)
        if kind in ("rows", "scattered", "shape"):
            return self._of_rows(kind, values.variables[operands[0]])
        if kind == "look":
            place, how = operands
            value = tf.cast(tf.convert_to_tensor(values.variables[place]), tf.float32)
            if how == "first":
                return tf.reshape(value, [-1])[0]
            return tf.reduce_sum(value) if how == "sum" else tf.reduce_max(value)
        if kind == "branch":
            condition, one, other = operands
            return tf.cond(
                values.truth(condition, gradients),
                lambda: self._done(one, dict(gradients)),
                lambda: self._done(other, dict(gradients)),
            )
        if kind == "switch":
            which = tf.cast(tf.math.floormod(tf.convert_to_tensor(values.count), 3.0), tf.int32)
            blocks = [functools.partial(self._done, own, dict(gradients)) for own in operands]
            return tf.switch_case(which, blocks)
        if kind == "waits":
            first = self._done(operands[0], dict(gradients))
            with tf.control_dependencies([first]):
                return first + self._done(operands[1], dict(gradients))
        if kind == "loop":
            return self._looped(*operands, gradients=gradients)
        body, jit_compile = operands
        inner = tf.function(
            lambda: self._done(body, dict(gradients)), jit_compile=True if jit_compile else None
        )
        return inner()

    def _merged(
        self, place: Place, method: str, written: Expression, *, gradients: dict[int, tf.Tensor]
    ) -> None:
        """A write that all replicas do together."""
        values = self._values
        value = values.filled(place[0], tf.tanh(values.of(written, gradients)))

        def update(strategy: tf.distribute.Strategy, value: Any) -> Any:
            write = lambda own, new: getattr(own, method)(new)  # noqa: E731
            return strategy.extended.update(values.variables[place], write, args=(value,))

        tf.distribute.get_replica_context().merge_call(update, args=(value,))

    def _of_rows(self, kind: str, variable: Any) -> tf.Tensor:
        """Reads rows of a variable, adds to some, or asks how many there are."""
        if kind == "shape":
            return tf.cast(tf.reduce_sum(tf.shape(variable)), tf.float32)
        rows = tf.gather(variable, [2, 0])
        if kind == "rows":
            return tf.reduce_max(tf.cast(rows, tf.float32))
        variable.scatter_add(tf.IndexedSlices(rows * tf.cast(0.5, rows.dtype), [1, 2]))
        return tf.constant(0.0)

    def _own_factor(self) -> tf.Tensor:
        """A number of each replica's own."""
        context = tf.distribute.get_replica_context()
        return 0.7 + 0.7 * tf.cast(context.replica_id_in_sync_group, tf.float32)

    def _looped(
        self, turns: int, is_fixed: bool, body: Block, *, gradients: dict[int, tf.Tensor]
    ) -> tf.Tensor:
        """A loop of some turns, or of one more in every other step."""
        last: Any = turns
        if not is_fixed:
            count = tf.convert_to_tensor(self._values.count)
            last = turns + tf.cast(tf.math.floormod(count, 2.0), tf.int32)

        def turn(number: tf.Tensor, seen: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return number + 1, seen * 0.5 + self._done(body, dict(gradients))

        return tf.while_loop(lambda number, _: number < last, turn, (0, tf.constant(0.0)))[1]

    def _gradients(self, how: str) -> list[tf.Tensor]:
        """The reduced gradients of all weights; each replica has other ones of its own."""
        own, context = self._own_factor(), tf.distribute.get_replica_context()
        weights = [self._values.variables[n, 0] for n in range(len(self._program.shapes))]
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(tf.sin(w * tf.cast(own, w.dtype))) for w in weights])
        return list(context.all_reduce(how.upper(), tape.gradient(loss, weights)))
