"""A body is built of every write of its variables, each operand as it is on the shard."""

from __future__ import annotations

from typing import Any

import pytest

from tests.graph.text_graph import DIALECT, view_of
from tests.weight_update.analysis.steps import MOMENTUM, REDUCED, STEP
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import VariableRef
from tf_wu_shard.refusals import Refusal, Replicas, Updates
from tf_wu_shard.step.gradients import gradient_reductions
from tf_wu_shard.weight_update.analysis.body import BodyBuilder
from tf_wu_shard.weight_update.analysis.reduced_graph import ReducedGraph
from tf_wu_shard.weight_update.analysis.types import BodyOp, Operand, OperandKind, WeightUpdate

SHAPES = {"w": (2, 2), "m": (2, 2), "s": (2, 2)}
# One component of a variable that is said to have two.
HALF = {"h0": VariableRef("h", 0, 2, (2, 2), 1, True, "d0", trainable=True)}

# The gradient in the shape of the weight; a rate, a row and a mask from outside.
GRID = """
grid# = Reshape(sum#, key) [2,2] @d#
rate# = Placeholder() [] @d#
row# = Placeholder() [1,2] @d#
mask# = Placeholder() [2,2] @d#
"""

# A second moment that is made of what is no gradient, and is read back.
UNCLAIMED = """
old# = ReadVariableOp(s#) [2,2] @d#
kept# = Mul(old#, rate) [2,2] @d#
put# = AssignVariableOp(s#, kept#) @d# ^old#
second# = ReadVariableOp(s#) [2,2] @d# ^put#
unit# = RealDiv(grid#, second#) [2,2] @d#
step# = AssignSubVariableOp(w#, unit#) @d#
"""


def build(
    text: str,
    variables: tuple[str, ...] = ("w",),
    *,
    claimed: tuple[str, ...] = ("w",),
    outputs: tuple[str, ...] = (),
    grid: bool = True,
) -> WeightUpdate | Refusal:
    """What is built of the gradient and the writes of these variables."""
    text = (GRID + "rate = Placeholder() []\n" if grid else "") + text
    shapes = SHAPES if grid else dict.fromkeys(SHAPES, (4,))
    view = view_of(REDUCED + text, variables=shapes, refs=HALF, outputs=outputs)
    carried, _ = DIALECT.recognise(view)
    graph = ReducedGraph.of(view, gradient_reductions(view, carried), DIALECT.replicas)
    return BodyBuilder(graph, graph.matcher(), graph.handles.keys() - claimed).build(
        (0,), variables
    )


def built(text: str, variables: tuple[str, ...] = ("w",), **keywords: Any) -> WeightUpdate:
    found = build(text, variables, claimed=variables, **keywords)
    assert isinstance(found, WeightUpdate), str(found)
    return found


def test_all_writes_are_in_it_with_what_they_are_made_of_and_the_copies_of_all_replicas() -> None:
    update = built(MOMENTUM, ("m", "w"), grid=False)
    assert [(v.key, v.is_slot, v.handles) for v in update.variables] == [
        ("w", False, ("w0", "w1")),
        ("m", True, ("m0", "m1")),
    ]
    assert (update.reductions, update.devices) == ((0,), ("d0", "d1"))
    handle = Operand(OperandKind.HANDLE, variable="m")
    put, moved, step = update.body
    gradient = Operand(OperandKind.GRADIENT, index=0)
    assert put == BodyOp("AssignAddVariableOp", ("put0", "put1"), (handle, gradient), "m")
    assert moved == BodyOp("ReadVariableOp", ("moved0", "moved1"), (handle,), "m")
    assert step.operands[1] == Operand(OperandKind.BODY, index=1)


@pytest.mark.parametrize(
    ("other", "kind", "shape"),
    [
        ("rate", OperandKind.SCALAR, ()),
        ("mask", OperandKind.SLICE, (2, 2)),
        # What it is broadcast to.
        ("row", OperandKind.BROADCAST, (2, 2)),
    ],
)
def test_what_is_outside_is_a_number_or_a_tensor_to_cut_or_to_broadcast(
    other: str, kind: OperandKind, shape: tuple[int, ...]
) -> None:
    shared = GRID.replace("#", "")
    text = f"x = Placeholder() [4]\n{shared}scaled# = Mul(grid#, {other}) [2,2] @d#\n"
    text = text.replace("grid = Reshape(sum, key) [2,2] @d\n", "").replace(" @d\n", "\n")
    text = text.replace("rate = Placeholder() []\n", "")
    update = built(text + STEP.format("scaled#"))
    values = (Value(other), Value(other))
    assert update.body[0].operands[1] == Operand(kind, values=values, shape=shape)


def test_a_variable_that_another_op_may_write_or_a_replica_lacks_is_refused() -> None:
    text = "odd# = OddOp(w#) [] @d#\n" + STEP.format("grid#")
    odd = build(text, outputs=("odd0", "odd1"))
    assert odd == Updates.HANDLE_TAKEN.at("odd0", op_type="OddOp", variable="w")
    assert build(STEP.format("grid#"), ("w", "h")) == Replicas.NOT_TOUCHED.at("h", replica=1)


def test_a_replica_that_writes_more_often_is_refused() -> None:
    more = "more = AssignSubVariableOp(w1, grid1) @d1 ^step1\n"
    found = build(STEP.format("grid#") + more)
    assert found == Replicas.WRITTEN_MORE_OFTEN.at("w", replica=1)


# A slot that is made of another one alone, before the gradient goes into that; the weight takes it.
OF_SLOTS = """
old# = ReadVariableOp(m#) [2,2] @d#
was# = ReadVariableOp(s#) [2,2] @d#
power# = Mul(was#, old#) [2,2] @d#
put_s# = AssignVariableOp(s#, power#) @d# ^was#
put_m# = AssignVariableOp(m#, grid#) @d# ^old#
unit# = RealDiv(grid#, power#) [2,2] @d#
step# = AssignSubVariableOp(w#, unit#) @d#
"""


def test_a_slot_that_is_made_of_another_one_belongs_to_the_update() -> None:
    update = build(OF_SLOTS, ("w", "m"), claimed=("w", "m"))
    assert isinstance(update, WeightUpdate)
    assert [v.key for v in update.slots] == ["m", "s"]
    assert {op.ops[0] for op in update.body} >= {"was0", "power0", "put_s0", "put_m0"}
    # Another update may have it, or another reader: what looks at the value is told then.
    looked = Updates.LOOKED_AT.at("put_s0", op_type="AssignVariableOp")
    assert build(OF_SLOTS, ("w", "m"), claimed=("w", "m", "s")) == looked
    peeked = OF_SLOTS + "peek# = Print(was#) [] @d#\n"
    assert build(peeked, ("w", "m"), claimed=("w", "m"), outputs=("peek0", "peek1")) == looked


def test_who_looks_at_what_is_computed_in_shards_is_told() -> None:
    text = "half# = Mul(grid#, rate) [2,2] @d#\n" + STEP.format("half#")
    assert isinstance(build(text), WeightUpdate)
    assert build(text, outputs=("half1",)) == Updates.RETURNED.at("half1")
    looked = build(text + "kept = Print(half1) [] @d1\n")
    assert looked == Updates.LOOKED_AT.at("kept", op_type="Print")
    # A read of the weight is none of these: what is stored stays whole.
    read = "late# = ReadVariableOp(w#) [2,2] @d# ^step#\nkept# = Print(late#) [] @d#\n"
    assert isinstance(build(text + read), WeightUpdate)


def test_a_slot_that_no_gradient_reaches_belongs_to_it_unless_another_claims_it() -> None:
    found = build(UNCLAIMED)
    assert isinstance(found, WeightUpdate)
    assert [v.key for v in found.slots] == ["s"]
    assert "AssignVariableOp" in [op.type for op in found.body]
    claimed = build(UNCLAIMED, claimed=("w", "s"))
    assert isinstance(claimed, WeightUpdate)
    assert claimed.slots == () and claimed.body[0].type == "RealDiv"
