"""Random training programs: what steps of replicas, functions of the host and eager code may do.

A program is data, so that it is taken the same way without and with the flag. Its weights are
trained by updates written by hand, most of them like those of known optimizers; around and between
these its statements look at variables, write them, branch, loop and call functions. What it leaves,
and all that it saw on its way, must be the same.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from typing import Any, TypeAlias

# A variable: the number of a weight, and 0 for the weight itself or the number of a slot of it.
Place: TypeAlias = tuple[int, int]

# A kind, and its operands. The kinds are the methods of `program_runs`.
Expression: TypeAlias = tuple[Any, ...]
Statement: TypeAlias = tuple[Any, ...]
Block: TypeAlias = tuple[Statement, ...]

_SHAPES = ((24, 16), (7, 5, 3), (33,), (40, 12), (3,))
_DTYPES = (*("float32",) * 8, "float64", "bfloat16")
_WRITES = ("assign", "assign_add", "assign_sub")
_OF_TWO = ("add", "sub", "mul", "div", "max", "where")
_OF_ONE = ("square", "tanh", "sign", "clip", "round", "reshape", "root")
# No shard can do these alone.
_OF_WHOLE = ("flip", "cumulative", "norm", "total")

# How the host runs a step: by itself, in a loop, in a branch, again, between statements of its own.
_WRAPS = (
    *("plain", "plain", "plain", "twice", "between"),
    *("range", "while", "dataset", "branch", "either"),
)


@dataclasses.dataclass(frozen=True)
class Step:
    """A function of the host that runs the replicas.

    Attributes:
        replica: What each replica does.
        wrap: How the host runs it.
        host: What the host does beside it, in some of the wraps.
    """

    replica: Block
    wrap: str = "plain"
    host: Block = ()


@dataclasses.dataclass(frozen=True)
class Program:
    """A whole program.

    Attributes:
        shapes: Of the weights.
        slots: How many slots each of them has.
        dtype: Of them all.
        steps: Functions that run replicas.
        functions: Functions of the host that run none.
        actions: What is done eagerly: steps and functions are called, variables looked at and
            written.
    """

    shapes: tuple[tuple[int, ...], ...]
    slots: tuple[int, ...]
    dtype: str = "float32"
    steps: tuple[Step, ...] = ()
    functions: tuple[Block, ...] = ()
    actions: tuple[Statement, ...] = ()

    @property
    def is_exact(self) -> bool:
        """Whether no sum is taken over shards, which may round otherwise than one of the whole."""
        return not any(part[0] in ("norm", "total") for part in _parts(self.steps))

    @property
    def compiles(self) -> bool:
        """Whether XLA is asked to compile a function that replicas call."""
        return any(part[0] == "call" and part[2] for part in _parts(self.steps))


def _parts(whole: Any) -> Iterator[tuple[Any, ...]]:
    """All statements and expressions of some, at any depth."""
    if isinstance(whole, Step):
        yield from _parts(whole.replica)
    if isinstance(whole, tuple) and whole:
        if isinstance(whole[0], str):
            yield whole
        for part in whole:
            yield from _parts(part)


def program_of(seed: int) -> Program:
    """The program of a seed."""
    return _Generator(random.Random(seed)).program()


class _Generator:
    def __init__(self, source: random.Random) -> None:
        self._random = source
        self._shapes: tuple[tuple[int, ...], ...] = ()
        self._slots: tuple[int, ...] = ()

    def program(self) -> Program:
        draw = self._random
        shapes = tuple(draw.choice(_SHAPES) for _ in range(draw.randint(1, 3)))
        if draw.random() < 0.5:
            shapes = shapes[:1] * len(shapes)
        self._shapes = shapes
        self._slots = tuple(draw.randint(1, 2) for _ in shapes)
        dtype = draw.choice(_DTYPES)
        steps = tuple(self._step() for _ in range(draw.choice((1, 1, 2, 2, 3))))
        functions = tuple(
            self._block(2, draw.randint(1, 3), on_host=True) for _ in range(draw.randint(0, 2))
        )
        between = [self._action(len(steps), len(functions)) for _ in range(draw.randint(2, 6))]
        last = ("step", draw.randrange(len(steps)))
        actions = (("step", 0), *between, last)
        return Program(shapes, self._slots, dtype, steps, functions, actions)

    def _action(self, steps: int, functions: int) -> Statement:
        draw, kind = self._random, self._random.random()
        if kind < 0.2 and functions:
            return ("function", draw.randrange(functions))
        if kind < 0.3:
            return ("scaled", self._place(), draw.choice((0.5, 0.9, 1.25)))
        if kind < 0.45:
            return ("shown", self._place())
        if kind < 0.52:
            return ("copied", self._place())
        if kind < 0.70:
            return (draw.choice(("saved", "restored", "exported")),)
        return ("step" if kind < 0.92 else "retraced", draw.randrange(steps))

    def _place(self, weight: int | None = None) -> Place:
        chosen = self._weight() if weight is None else weight
        return chosen, self._random.randint(0, self._slots[chosen])

    def _weight(self) -> int:
        return self._random.randrange(len(self._slots))

    def _step(self) -> Step:
        draw = self._random
        body: list[Statement] = [("gradients", draw.choice(("sum", "sum", "mean")))]
        if draw.random() < 0.3:
            body = [*self._block(1, 2), *body]
        for weight in range(len(self._slots)):
            if draw.random() < 0.93:
                body += self._update(weight)
        if draw.random() < 0.5:
            for statement in self._block(1, draw.randint(1, 3)):
                body.insert(draw.randint(1, len(body)), statement)
        if draw.random() < 0.2:
            body.insert(draw.randint(1, len(body)), ("agreed", self._place(), "sum"))
        if draw.random() < 0.12:
            body += [("gradients", "sum"), *self._update(self._weight())]
        if draw.random() < 0.5:
            body.append(("counted",))
        return Step(tuple(body), draw.choice(_WRAPS), self._block(1, 1, on_host=True))

    def _update(self, weight: int) -> Block:
        """An update of a weight, in a branch, a loop or a call at times."""
        done, kind = self._plain_update(weight), self._random.random()
        if kind < 0.1:
            return (("call", done, False),)
        if kind < 0.14:
            return (("call", done, True),)
        if kind < 0.24:
            other = self._block(2, self._random.randint(0, 1), weight=weight)
            return (("branch", self._condition(summed=True), done, other),)
        if kind < 0.30:
            return (("loop", self._random.randint(1, 3), self._random.random() < 0.5, done),)
        if kind < 0.34:
            return (("branch", self._condition(summed=True), (("call", done, False),), ()),)
        if kind < 0.37:
            either = (self._expression(weight, 1, summed=True), self._expression(weight, 1))
            return (("let", weight, self._condition(summed=True), *either), *done)
        return done

    def _plain_update(self, weight: int) -> Block:
        draw = self._random
        kind = draw.choice(("momentum", "nesterov", "adam", "sgd", "any", "any"))
        own, gradient = (weight, 0), ("gradient", weight)
        first = ("read", (weight, 1))
        decayed = ("add", ("times", 0.9, first), gradient)
        if kind == "momentum":
            kept = ("write", (weight, 1), "assign", decayed)
            return kept, ("write", own, "assign_sub", ("times", 0.01, first))
        if kind == "nesterov":
            kept = ("write", (weight, 1), "assign", decayed)
            return kept, ("write", own, "assign_sub", ("times", 0.01, decayed))
        if kind == "adam" and self._slots[weight] > 1:
            second = ("read", (weight, 2))
            nearer = ("times", 0.1, ("sub", gradient, first))
            squares = ("times", 0.01, ("sub", ("square", gradient), second))
            return (
                ("write", (weight, 1), "assign_add", nearer),
                ("write", (weight, 2), "assign_add", squares),
                ("write", own, "assign_sub", ("times", 0.01, ("div", first, second))),
            )
        if kind == "any":
            written = tuple(
                ("write", self._place(weight), draw.choice(_WRITES), self._expression(weight, 2))
                for _ in range(draw.randint(1, 3))
            )
            step = ("times", 0.01, self._expression(weight, 1, summed=True))
            return (*written, ("write", own, "assign_sub", step))
        return (("write", own, "assign_sub", ("times", 0.01, gradient)),)

    def _condition(self, *, summed: bool = False) -> Expression:
        always = (("is_even",), ("is_odd",), ("is_true",), ("is_false",), ("is_big", self._place()))
        finite = (("is_finite", self._weight()),) if summed else ()
        return self._random.choice((*always, *finite))

    def _expression(self, weight: int, depth: int, *, summed: bool = False) -> Expression:
        """A value of a weight's shape.

        Args:
            weight: The weight.
            depth: How many ops are applied one to another, at most.
            summed: Whether its gradient must be in it.
        """
        draw = self._random
        if depth <= 0:
            ends: tuple[Expression, ...] = (("gradient", weight),)
            if not summed:
                alike = [n for n, own in enumerate(self._shapes) if own == self._shapes[weight]]
                read = ("read", self._place(draw.choice(alike)))
                ends = (*ends, read, ("number", draw.uniform(-1, 1)), ("turn",))
            return draw.choice(ends)
        kind = draw.choice((*_OF_TWO, *_OF_ONE, *_OF_WHOLE[: draw.choice((0, 0, 0, 4))], "times"))
        one = self._expression(weight, depth - 1, summed=summed)
        if kind in _OF_TWO:
            return kind, one, self._expression(weight, depth - 1)
        return (
            ("times", draw.choice((0.5, 0.9, -0.3, 2.0)), one) if kind == "times" else (kind, one)
        )

    def _block(
        self, depth: int, count: int, *, on_host: bool = False, weight: int | None = None
    ) -> Block:
        return tuple(self._statement(depth, on_host, weight) for _ in range(count))

    def _statement(self, depth: int, on_host: bool, weight: int | None) -> Statement:
        """Something that reads or writes variables, of no gradient.

        Args:
            depth: How many branches, loops and calls may lie in one another.
            on_host: Whether it is done for all replicas at once.
            weight: The weight that it is about, if not any.
        """
        draw, kind = self._random, self._random.random()
        place = self._place(weight)
        if draw.random() < 0.2:
            return self._unusual(depth, on_host, weight, place)
        if depth <= 0 or kind < 0.27:
            look = ("look", place, draw.choice(("sum", "first", "max")))
            read = ("read", self._place(place[0]))
            written = draw.choice((read, ("times", 0.9, read), ("add", read, ("number", 0.1))))
            write = ("write", place, draw.choice(_WRITES), ("times", 0.5, written))
            return look if draw.random() < 0.6 else write
        inner = self._block(depth - 1, draw.randint(1, 2), on_host=on_host, weight=place[0])
        if kind < 0.52:
            other = self._block(depth - 1, draw.randint(0, 1), on_host=on_host, weight=place[0])
            return ("branch", self._condition(), inner, other)
        if kind < 0.76:
            return ("loop", draw.randint(1, 3), draw.random() < 0.5, inner)
        # XLA compiles nothing that reaches the devices of several replicas.
        return ("call", inner, not on_host and draw.random() < 0.15)

    def _unusual(self, depth: int, on_host: bool, weight: int | None, place: Place) -> Statement:
        """What few steps do; see `_statement`."""
        draw = self._random
        kinds = ["rows", "scattered", "shape"]
        if depth > 0:
            kinds += ["switch", "waits"]
            # Only what replicas do themselves, and in no branch, they may do together.
            kinds += [] if on_host or weight is not None else ["merged"]
        kind = draw.choice(kinds)
        if kind == "merged":
            halved = ("times", 0.5, ("read", self._place(place[0])))
            return (kind, place, draw.choice(_WRITES), halved)
        if kind not in ("switch", "waits"):
            return (kind, place)
        counts = (1, 1) if kind == "waits" else (1, draw.randint(0, 1), draw.randint(0, 1))
        blocks = (self._block(depth - 1, n, on_host=on_host, weight=place[0]) for n in counts)
        return (kind, *blocks)
