"""An update that is not what it has to be is caught, whatever of it is broken."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tests.graph.text_graph import DIALECT, view_of
from tests.weight_update.analysis.steps import MOMENTUM, REDUCED, SHAPES
from tf_wu_shard.errors import WuShardError
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.weight_update.analysis import analyze as analysis
from tf_wu_shard.weight_update.analysis.types import (
    BodyOp,
    OperandKind,
    WeightUpdate,
)
from tf_wu_shard.weight_update.analysis.updates import FoundUpdates
from tf_wu_shard.weight_update.analysis.verify import verify_updates


@pytest.fixture(scope="module")
def view() -> GraphView:
    text = REDUCED + "half = Const() {value=0.5} []\n" + MOMENTUM.replace("w#, moved#", "w#, y#")
    text = text.replace("step#", "y# = Mul(moved#, half) [4] @d#\nstep#")
    return view_of(text, variables=SHAPES)


@pytest.fixture(scope="module")
def update(view: GraphView) -> WeightUpdate:
    (found,) = analysis.analyze(view, DIALECT).updates
    return found


def with_op(update: WeightUpdate, op_type: str, **changes: Any) -> WeightUpdate:
    """The same with something else in the op of a type."""
    body = [dataclasses.replace(op, **changes) if op.type == op_type else op for op in update.body]
    return dataclasses.replace(update, body=tuple(body))


def with_operand(update: WeightUpdate, kind: OperandKind, **changes: Any) -> WeightUpdate:
    """The same with something else in every operand of a kind."""

    def changed(op: BodyOp) -> BodyOp:
        operands = (dataclasses.replace(o, **changes) if o.kind is kind else o for o in op.operands)
        return dataclasses.replace(op, operands=tuple(operands))

    return dataclasses.replace(update, body=tuple(map(changed, update.body)))


def test_what_the_analysis_finds_is_sound(view: GraphView, update: WeightUpdate) -> None:
    kinds = {operand.kind for op in update.body for operand in op.operands}
    wanted = {OperandKind.BODY, OperandKind.GRADIENT, OperandKind.HANDLE, OperandKind.SCALAR}
    assert kinds == wanted
    verify_updates(view, [update])


def test_an_op_that_the_graph_lacks_is_caught(view: GraphView, update: WeightUpdate) -> None:
    with pytest.raises(WuShardError, match="update of w has gone1, which no op is called"):
        verify_updates(view, [with_op(update, "Mul", ops=("y0", "gone1"))])


def test_a_value_that_the_graph_lacks_is_caught(view: GraphView, update: WeightUpdate) -> None:
    broken = with_operand(update, OperandKind.SCALAR, values=(Value("half"), Value("gone")))
    with pytest.raises(WuShardError, match="update of w has gone, which no op is called"):
        verify_updates(view, [broken])


def test_a_handle_that_the_graph_lacks_is_caught(view: GraphView, update: WeightUpdate) -> None:
    weight, slot = update.variables
    lost = dataclasses.replace(slot, handles=("m0", "gone"))
    with pytest.raises(WuShardError, match="update of w has gone, which no op is called"):
        verify_updates(view, [dataclasses.replace(update, variables=(weight, lost))])


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (OperandKind.BODY, {"index": 9}),
        (OperandKind.BODY, {"index": -1}),
        (OperandKind.GRADIENT, {"index": 1}),
        (OperandKind.HANDLE, {"variable": "v"}),
        (OperandKind.SCALAR, {"values": ()}),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_an_operand_from_nowhere_is_caught(
    view: GraphView, update: WeightUpdate, kind: OperandKind, changes: dict[str, Any]
) -> None:
    broken = with_operand(update, kind, **changes)
    with pytest.raises(WuShardError, match=r"among its operands .*, which nothing before it is"):
        verify_updates(view, [broken])


def test_an_op_before_its_operands_is_caught(view: GraphView, update: WeightUpdate) -> None:
    swapped = dataclasses.replace(update, body=update.body[::-1])
    with pytest.raises(WuShardError, match="which nothing before it is"):
        verify_updates(view, [swapped])


def test_a_write_of_another_variable_is_caught(view: GraphView, update: WeightUpdate) -> None:
    broken = with_op(update, "AssignSubVariableOp", variable="v")
    with pytest.raises(WuShardError, match="AssignSubVariableOp step0 write v, which is no"):
        verify_updates(view, [broken])


def test_a_write_of_nothing_is_caught(view: GraphView, update: WeightUpdate) -> None:
    broken = with_op(update, "AssignSubVariableOp", variable="", operands=())
    with pytest.raises(WuShardError, match="write nothing, which is no variable of it"):
        verify_updates(view, [broken])


def test_a_mistake_of_the_analysis_does_not_get_further(
    view: GraphView, update: WeightUpdate, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_slot = dataclasses.replace(update, variables=update.variables[:1])
    monkeypatch.setattr(analysis, "weight_updates", lambda graph: FoundUpdates((without_slot,)))
    with pytest.raises(WuShardError, match="update of w"):
        analysis.analyze(view, DIALECT)
