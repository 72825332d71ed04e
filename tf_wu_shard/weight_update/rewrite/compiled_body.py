"""The function that XLA compiles of some ops of an update, with the bits that the ops have.

XLA would contract a product and a sum into one op, and divide by a quotient by multiplying. It does
so with what it sees: so every number that one op hands to the next has its bits combined, by an
exclusive or, with a zero that is known only when the step runs. That costs next to nothing, as it
happens in registers, and leaves only single ops to be proved, see `rules.compiled`.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from tf_wu_shard.dtypes import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, INT16, INT32, INT64
from tf_wu_shard.graph.builder import Emitter, GraphBuilder, result_types
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.rules.compiled import SPELLED_OUT
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.rules.writes import WRITES, is_plain_write

# Integers as wide as numbers of each type.
_BITS = {FLOAT32: INT32, FLOAT64: INT64, FLOAT16: INT16, BFLOAT16: INT16}

_ASSIGN = "AssignVariableOp"


@dataclasses.dataclass(frozen=True)
class CompiledBody:
    """A function for XLA to compile. Equal ones have one name, whichever update they are of.

    Attributes:
        name: Its name.
        nodes: Its NodeDefs; each argument is a Placeholder.
        arguments: Names of the arguments, in order.
        outputs: The values that it returns.
        effects: Names of the ops that write variables.
        takes_zero: Whether its first argument is a zero of int32, known only when the step runs.
    """

    name: str
    nodes: tuple[Any, ...]
    arguments: tuple[str, ...]
    outputs: tuple[Value, ...]
    effects: tuple[str, ...]
    takes_zero: bool


def shape_of(
    ops: Sequence[Op], results: Sequence[Value], graph: Mapping[str, Op]
) -> tuple[Hashable, list[Value]]:
    """What makes the functions of some ops equal, but for the values that they are given.

    It is much less work than the function, and most updates of a step are alike.

    Args:
        ops: See `compiled_body`, as `results` and `graph`.
        results: Values of theirs that others read.
        graph: All ops of their graph.

    Returns:
        Something that is equal for equal functions; and the values of other ops that these read, in
        an order that follows from it.
    """
    places = {op.name: place for place, op in enumerate(ops)}
    outside: dict[Value, tuple[int, int]] = {}
    found: list[Hashable] = []
    for op in ops:
        inputs: list[Hashable] = []
        for number, value in enumerate(op.inputs):
            if value.op in places:
                inputs.append((places[value.op], value.index))
            elif op.type == "Reshape" and number == 1:
                inputs.append(attributes_of(graph[value.op].node))
            else:
                if value not in outside:
                    dtype = result_types(graph[value.op].node)[value.index]
                    outside[value] = (-1 - len(outside), dtype)
                inputs.append(outside[value])
        waits = tuple(places[name] for name in op.controls if name in places)
        found.append((op.type, attributes_of(op.node), tuple(inputs), waits))
    found.append(tuple((places[value.op], value.index) for value in results))
    return tuple(found), list(outside)


def attributes_of(node: Any) -> Hashable:
    """The attributes of a NodeDef that say what it computes, to be compared with others'."""
    # `GraphBuilder.like` leaves out those that only describe where an op stood.
    kept = (key for key in node.attr if not key.startswith("_"))
    return tuple(
        (key, node.attr[key].SerializeToString(deterministic=True)) for key in sorted(kept)
    )


def compiled_body(
    ops: Sequence[Op], results: Sequence[Value], graph: Mapping[str, Op], *, exact: bool
) -> tuple[CompiledBody, tuple[Value, ...]]:
    """Makes a function of some ops.

    Args:
        ops: The ops, each after all that it waits for; they run on one device, and no way between
            two of them leads over others.
        results: Values of theirs that others read.
        graph: All ops of their graph.
        exact: Whether it computes the very bits that the ops do.

    Returns:
        The function, and the values of the graph that it takes, after the zero if it takes one.
    """
    body = _Body(ops, graph, exact=exact)
    for op in ops:
        body.add(op)
    return body.finished(results), tuple(body.arguments)


class _Body:
    def __init__(self, ops: Sequence[Op], graph: Mapping[str, Op], *, exact: bool) -> None:
        self._own = {op.name for op in ops}
        self._graph = graph
        self._exact = exact
        self._builder = GraphBuilder(())
        self._at = Emitter(self._builder, "", "")
        self.arguments: dict[Value, Value] = {}
        self._values: dict[Value, Value] = {}
        # The op that stands for each op, where others wait for it.
        self._instead: dict[str, str] = {}
        # Numbers that XLA sees being computed, and what it does not see through in their place.
        self._seen: set[Value] = set()
        self._hidden: dict[Value, Value] = {}
        self._written: set[Value] = set()
        self._effects: list[str] = []
        self._zero: Value | None = None
        self._zeros: dict[int, Value] = {}

    def add(self, op: Op) -> None:
        """Adds the next op."""
        if is_plain_write(op.type):
            self._write(op)
            return
        if op.type == "Reshape":
            shape = self._graph[op.inputs[1].op].node
            inputs = [
                self._value(op.inputs[0]),
                self._builder.like(shape, [], name="shape", device=""),
            ]
            made = self._like(op, inputs)
            seen = inputs[0] in self._seen
        elif op.type in (READ, "Identity"):
            inputs = [self._value(value) for value in op.inputs]
            made = self._like(op, inputs)
            seen = inputs[0] in self._seen or inputs[0] in self._written
        else:
            made = self._computed(op, [self._operand(value) for value in op.inputs])
            seen = True
        self._values[Value(op.name)] = made
        self._instead[op.name] = made.op
        if seen:
            self._seen.add(made)

    def finished(self, results: Sequence[Value]) -> CompiledBody:
        """The function."""
        outputs = tuple(self._values[value] for value in results)
        nodes = tuple(self._builder.nodes)
        digest = hashlib.sha256()
        for node in nodes:
            digest.update(node.SerializeToString(deterministic=True))
        digest.update(repr((outputs, self._effects)).encode())
        arguments = [value.op for value in self.arguments.values()]
        return CompiledBody(
            f"wu_shard_update_{digest.hexdigest()[:32]}",
            nodes,
            tuple(([] if self._zero is None else [self._zero.op]) + arguments),
            outputs,
            tuple(self._effects),
            self._zero is not None,
        )

    def _value(self, value: Value) -> Value:
        """A value of the graph in the function."""
        if value in self._values:
            return self._values[value]
        if value not in self.arguments:
            dtype = result_types(self._graph[value.op].node)[value.index]
            self.arguments[value] = self._at.op("Placeholder", [], "argument", dtype=dtype)
        return self.arguments[value]

    def _operand(self, value: Value) -> Value:
        """A value that another op computes with."""
        return self._unseen(self._value(value))

    def _unseen(self, value: Value) -> Value:
        """A number that XLA sees being computed as one that it does not see through."""
        bits = _BITS.get(self._builder.dtype(value))
        if not self._exact or bits is None or value not in self._seen:
            return value
        if value not in self._hidden:
            at, own = self._at, self._builder.dtype(value)
            raw = at.op("Bitcast", [value], "bits", type=bits)
            same = at.op("BitwiseXor", [raw, self._zero_of(bits)], "same_bits")
            self._hidden[value] = at.op("Bitcast", [same], "unseen", type=own)
        return self._hidden[value]

    def _zero_of(self, dtype: int) -> Value:
        if self._zero is None:
            self._zero = self._at.op("Placeholder", [], "zero", dtype=INT32)
        if dtype not in self._zeros:
            self._zeros[dtype] = self._at.cast(self._zero, dtype, "zero_of_width")
        return self._zeros[dtype]

    def _computed(self, op: Op, operands: Sequence[Value]) -> Value:
        numbers = _BITS.keys() & {self._builder.dtype(value) for value in operands}
        if not (self._exact and numbers and op.type in SPELLED_OUT):
            return self._like(op, operands)
        at, (first, *others) = self._at, operands
        if op.type == "Sign":
            is_zero = at.op("Equal", [first, at.op("ZerosLike", [first], "zero")], "is_zero")
            without = at.op("Abs", [first], "without_sign")
            return at.op("SelectV2", [is_zero, without, self._like(op, operands)], "sign")
        # As the kernels have it: of two equal ones, zeros of any sign, the second.
        beats = at.op("Greater" if op.type == "Maximum" else "Less", operands, "beats")
        taken = at.op("LogicalOr", [beats, at.op("IsNan", [first], "is_nan")], "taken")
        return at.op("SelectV2", [taken, first, *others], "extremum")

    def _write(self, op: Op) -> None:
        """A write, one that adds as an addition before it: XLA must not see through its sum."""
        handle = self._value(op.inputs[0])
        controls = self._controls(op)
        combine = WRITES[op.type].on_values
        if combine is None:
            written = self._value(op.inputs[1])
        else:
            operand = self._operand(op.inputs[1])
            dtype = self._builder.dtype(operand)
            before = self._at.op(READ, [handle], "before", controls=controls, dtype=dtype)
            controls = [*controls, before.op]
            if handle in self._written:
                self._seen.add(before)
            written = self._at.op(combine, [self._unseen(before), operand], combine)
        dtype = self._builder.dtype(written)
        write = self._at.op(_ASSIGN, [handle, written], _ASSIGN, controls=controls, dtype=dtype)
        self._written.add(handle)
        self._instead[op.name] = write.op
        self._effects.append(write.op)

    def _like(self, op: Op, inputs: Sequence[Value]) -> Value:
        return self._at.like(op.node, inputs, op.type, controls=self._controls(op))

    def _controls(self, op: Op) -> list[str]:
        return [self._instead[name] for name in op.controls if name in self._own]
