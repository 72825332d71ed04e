"""Finds the updates that shards can do but for parts that need whole tensors.

On TPUs and among workers all replicas run one program, so none can own an update with matrix
functions (the Newton-Schulz iteration of Muon). Its slots, on TPUs its weight too, live in shards
all the same, and what is elementwise is done on these; only what enters a matrix function is put
together for it, and what it yields is cut again. It is proved of the whole body as of any other
that it is the same on every replica.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Sequence

from tf_wu_shard import refusals
from tf_wu_shard.dtypes import dtype_name
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.dialect import Stacks
from tf_wu_shard.placement import Sharded
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.weight_update.analysis.body import BodyBuilder
from tf_wu_shard.weight_update.analysis.exchanges import exchanges, function_ops, steps_behind
from tf_wu_shard.weight_update.analysis.fallback import fall_back, still_refused
from tf_wu_shard.weight_update.analysis.matrix_slice import MatrixSlice
from tf_wu_shard.weight_update.analysis.reduced_graph import ReducedGraph
from tf_wu_shard.weight_update.analysis.types import (
    BodyOp,
    FunctionValue,
    MatrixFunction,
    Operand,
    OperandKind,
    RefusedUpdate,
    UpdatedVariable,
    WeightUpdate,
)
from tf_wu_shard.weight_update.analysis.update_slice import UpdateSlice


def matrix_updates(
    graph: ReducedGraph,
    stacks: Stacks,
    sharded: Sequence[WeightUpdate],
    refused: Sequence[RefusedUpdate],
) -> tuple[tuple[WeightUpdate, ...], tuple[RefusedUpdate, ...]]:
    """Looks again at the updates that were refused for want of a rule.

    Args:
        graph: The graph, which holds one program that all replicas run.
        stacks: How they exchange whole tensors.
        sharded: The updates that can be computed in shards throughout.
        refused: The others.

    Returns:
        The updates among the refused ones that can be computed in shards but for their matrix
        functions, and the rest; where only the rules stood in the way, their reasons now also say
        why whole tensors do not help.
    """
    found, reasons = fall_back(
        graph, sharded, refused, lambda free: MatrixBodyBuilder(graph, graph.matcher(), free)
    )
    unsent = {u.name: name for u in found if (name := _unsent(u, stacks))}
    sent = [update for update in found if update.name not in unsent]
    placed, waiting = _with_steps(graph.view, sent, sharded)
    against = {
        name: refusals.Matrices.NOT_EXCHANGED.at(name, dtype=dtype)
        for name, dtype in unsent.items()
    }
    against |= {u.name: refusals.Matrices.WAITS_FOR_ITSELF.at(u.name) for u in waiting}
    for update in (u for u in found if u.name in against):
        reasons |= dict.fromkeys((v.key for v in update.variables), against[update.name])
    return placed, still_refused(refused, reasons, _not_whole)


def nobody_takes_turns(refused: Sequence[RefusedUpdate]) -> tuple[RefusedUpdate, ...]:
    """The refused updates, those that want a rule with why they are not computed whole either.

    Args:
        refused: The updates of workers of several replicas each.
    """
    found = []
    for one in refused:
        if one.refusal.of_rules:
            nor = refusals.Matrices.NO_TURNS_OF_SEVERAL.at(one.refusal.where)
            one = dataclasses.replace(one, refusal=one.refusal.beside(nor))
        found.append(one)
    return tuple(found)


def _not_whole(why: Refusal) -> Refusal:
    return refusals.Matrices.NOR_WHOLE.at(why.where, why=str(why))


def _unsent(update: WeightUpdate, stacks: Stacks) -> str | None:
    """The element type of a tensor that cannot be put together or cut again, or None."""
    for function in update.functions:
        for value in (*function.inputs, *function.results):
            if not stacks.carries(value.dtype):
                return dtype_name(value.dtype)
    return None


def _with_steps(
    view: GraphView, found: Sequence[WeightUpdate], sharded: Sequence[WeightUpdate]
) -> tuple[tuple[WeightUpdate, ...], list[WeightUpdate]]:
    """The updates, each function with its step, and those that wait for themselves."""
    if not found:
        return (), []
    points = exchanges([*sharded, *found])
    steps = dict(zip(points, steps_behind(view, points), strict=True))
    placed: list[WeightUpdate] = []
    waiting: list[WeightUpdate] = []
    for update in found:
        own = [function_ops(update, function) for function in update.functions]
        if any(steps[point] > len(points) for point in own):
            waiting.append(update)
            continue
        functions = tuple(
            dataclasses.replace(function, step=steps[point])
            for function, point in zip(update.functions, own, strict=True)
        )
        placed.append(dataclasses.replace(update, functions=functions))
    return tuple(placed), waiting


class MatrixBodyBuilder(BodyBuilder):
    """Builds bodies with matrix functions."""

    _slice_type = MatrixSlice

    def _update(
        self, slice_: UpdateSlice, updated: tuple[UpdatedVariable, ...], keys: tuple[int, ...]
    ) -> WeightUpdate:
        assert isinstance(slice_, MatrixSlice), "the builder's own slice"
        update = super()._update(slice_, updated, keys)
        functions = tuple(self._function(update.body, n) for n in range(len(slice_.functions)))
        return dataclasses.replace(update, functions=functions)

    def _body_op(self, slice_: UpdateSlice, op: Op, numbers: dict[str, int]) -> BodyOp:
        assert isinstance(slice_, MatrixSlice), "the builder's own slice"
        function = slice_.function_of.get(op.name)
        if function is None:
            return super()._body_op(slice_, op, numbers)
        operands = tuple(self._whole_operand(slice_, function, v, numbers) for v in op.inputs)
        return BodyOp(op.type, (op.name,), operands, function=function)

    def _whole_operand(
        self, slice_: MatrixSlice, function: int, value: Value, numbers: dict[str, int]
    ) -> Operand:
        """An operand of an op of a function, with the shape that the op has it in."""
        value = slice_.origin(value)
        shape = self._view.shape(value) or ()
        own = value
        if value in self._names or slice_.function_of.get(value.op) != function:
            if not isinstance(slice_.placements.get(value), Sharded) and value not in self._names:
                return Operand(OperandKind.WHOLE, values=(value,), shape=shape)
            own = slice_.source(value)
        if slice_.is_gradient(own):
            return Operand(OperandKind.GRADIENT, index=self._names[own][0], shape=shape)
        return Operand(OperandKind.BODY, index=numbers[own.op], output=own.index, shape=shape)

    def _function(self, body: tuple[BodyOp, ...], number: int) -> MatrixFunction:
        places = [place for place, op in enumerate(body) if op.function == number]
        inputs: dict[Operand, FunctionValue] = {}
        outside: dict[Operand, None] = {}
        for operand in (operand for place in places for operand in body[place].operands):
            if operand.kind is OperandKind.WHOLE:
                if self._view.constant(operand.values[0]) is None:
                    outside[operand] = None
            elif operand.kind is OperandKind.GRADIENT or operand.index not in places:
                key = dataclasses.replace(operand, shape=())
                inputs.setdefault(key, self._function_value(body, key))
        read = {
            dataclasses.replace(operand, shape=()): None
            for op in body
            if op.function != number
            for operand in op.operands
            if operand.kind is OperandKind.BODY and operand.index in places
        }
        results = tuple(self._function_value(body, o) for o in sorted(read, key=_place))
        function = MatrixFunction(
            places[0], len(places), tuple(inputs.values()), tuple(outside), results, program=""
        )
        return dataclasses.replace(function, program=self._program(body, function))

    def _function_value(self, body: tuple[BodyOp, ...], operand: Operand) -> FunctionValue:
        if operand.kind is OperandKind.GRADIENT:
            value = self._names.of(operand.index, 0)[0]
        else:
            value = Value(body[operand.index].ops[0], operand.output)
        size = math.prod(self._view.shape(value) or ())
        return FunctionValue(operand, self._view.dtype(value), size)

    def _program(self, body: tuple[BodyOp, ...], function: MatrixFunction) -> str:
        """See `MatrixFunction.program`."""
        entering = {value.operand: n for n, value in enumerate(function.inputs)}
        outside = {operand: n for n, operand in enumerate(function.outside)}

        def described(operand: Operand) -> object:
            own = dataclasses.replace(operand, shape=())
            if own in entering:
                dtype = function.inputs[entering[own]].dtype
                return "input", entering[own], operand.shape, dtype
            if operand.kind is OperandKind.BODY:
                return "op", operand.index - function.first, operand.output
            (value,) = operand.values
            if operand in outside:
                return "outside", outside[operand], operand.shape, self._view.dtype(value)
            return "constant", self._matcher.content(self._view.ops[value.op])

        ops = [
            (self._matcher.content(self._view.ops[op.ops[0]]), [described(o) for o in op.operands])
            for op in body[function.first : function.first + function.count]
        ]
        given = [(v.operand.index - function.first, v.operand.output) for v in function.results]
        return hashlib.sha256(repr((ops, given)).encode()).hexdigest()[:16]


def _place(operand: Operand) -> tuple[int, int]:
    return operand.index, operand.output
