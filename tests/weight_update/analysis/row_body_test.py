"""An update that a sparse gradient feeds is one body on the rows of each shard, or refused."""

from __future__ import annotations

import pytest

from tests.graph.text_graph import DIALECT, view_of
from tf_wu_shard.grounds.dialect import Gathered
from tf_wu_shard.weight_update.analysis.analyze import analyze
from tf_wu_shard.weight_update.analysis.row_body import weights_by_rows
from tf_wu_shard.weight_update.analysis.types import Analysis, OperandKind

# Each replica's entries, and all of them one after the other on every replica.
GATHERED = """
axis = Const() {value=0}
zero = Const() {value=0} []
one = Const() {value=1} []
count = Const() {value=4} []
x# = Placeholder() [2,3] @d#
v# = Square(x#) [2,3] @d#
i# = Placeholder() {T=9} [2] @d#
allv = ConcatV2(v0, v1, axis) [4,3] @d0
alli = ConcatV2(i0, i1, axis) {T=9} [4] @d0
values# = Identity(allv) [4,3] @d#
rows# = Identity(alli) {T=9} [4] @d#
"""

# Momentum that decays everywhere: m = 0.9 m + sum of each row; w -= m.
DECAYING = """
old# = ReadVariableOp(m#) [4,3] @d#
kept# = Mul(old#, one) [4,3] @d#
sum# = UnsortedSegmentSum(values#, rows#, count) [4,3] @d#
new# = Sub(kept#, sum#) [4,3] @d#
put# = AssignVariableOp(m#, new#) @d# ^old#
moved# = ReadVariableOp(m#) [4,3] @d# ^put#
step# = AssignAddVariableOp(w#, moved#) @d#
"""

# The rows that are looked up, each once.
ONCE = """
only# = Unique(rows#) {T=9} [?] [?] @d#
size# = Shape(only#) {T=9} [1] @d#
many# = StridedSlice(size#, zero, one, one) {shrink_axis_mask=1} [] @d#
sums# = UnsortedSegmentSum(values#, only#:1, many#) [?] @d#
"""

FUSED = "step# = ResourceSparseApplyMomentum(w#, m#, one, sums#, only#, one) @d#\n"


def analysis_of(text: str, *, outputs: tuple[str, ...] = ()) -> Analysis:
    variables = {"w": (4, 3), "m": (4, 3)}
    view = view_of(GATHERED + text, variables=variables, trainable=("w",), outputs=outputs)
    return analyze(view, DIALECT)


def refused(text: str, outputs: tuple[str, ...] = ()) -> str:
    analysis = analysis_of(text, outputs=outputs)
    assert analysis.updates == ()
    return {r.variable: r.refusal.reason for r in analysis.refused}["w"]


def test_the_parts_of_a_sparse_gradient_are_reductions_of_their_own() -> None:
    analysis = analysis_of(DECAYING)
    kinds = [(r.gathered, r.order, r.carriers) for r in analysis.reductions]
    assert kinds == [
        (Gathered.VALUES, (0, 1), ("allv",)),
        (Gathered.ROWS, (0, 1), ("alli",)),
    ]


def test_sums_of_rows_go_into_a_table_that_is_cut_as_its_variables_are() -> None:
    (update,) = analysis_of(DECAYING).updates
    assert [v.key for v in update.weights] == ["w"]
    assert [v.key for v in update.slots] == ["m"]
    assert [op.type for op in update.body] == [
        *("ReadVariableOp", "Mul", "UnsortedSegmentSum", "Sub", "AssignVariableOp"),
        *("ReadVariableOp", "AssignAddVariableOp"),
    ]
    values, rows, count = update.body[2].operands
    assert (values.kind, values.index) == (OperandKind.GRADIENT, 0)
    assert (rows.kind, rows.index) == (OperandKind.GRADIENT, 1)
    assert count.kind is OperandKind.SCALAR
    assert weights_by_rows(update) == frozenset()


def test_a_fused_update_of_rows_that_do_not_repeat_changes_only_these() -> None:
    (update,) = analysis_of(ONCE + FUSED).updates
    assert [v.key for v in update.slots] == ["m"]
    places = update.body[3].operands[1]
    assert (update.body[3].type, places.output) == ("UnsortedSegmentSum", 1)
    assert weights_by_rows(update) == {"w"}


def test_a_weight_that_decays_as_a_whole_does_not_change_by_rows() -> None:
    decay = """
    before# = ReadVariableOp(w#) [4,3] @d#
    less# = Mul(before#, one) [4,3] @d#
    decayed# = AssignSubVariableOp(w#, less#) @d# ^before#
    scattered# = ResourceScatterSub(w#, rows#, values#) @d# ^decayed#
    """
    (update,) = analysis_of(decay).updates
    assert weights_by_rows(update) == frozenset()


def test_a_scatter_alone_changes_only_the_rows_looked_up() -> None:
    (update,) = analysis_of("step# = ResourceScatterSub(w#, rows#, values#) @d#").updates
    assert weights_by_rows(update) == {"w"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            FUSED.replace("sums#", "values#").replace("only#", "rows#"),
            "the rows that it updates may repeat",
        ),
        (
            "odd# = Exp(values#) [4,3] @d#\nstep# = ResourceScatterSub(w#, rows#, odd#) @d#",
            "Exp of some entries may be rounded otherwise than of all",
        ),
        (
            DECAYING.replace("count)", "one)"),
            "it adds up something else than the entries of each row",
        ),
        (
            "step# = ResourceScatterSub(w#, i#, values#) @d#",
            "replica 1 computes it from an input of its own",
        ),
        (
            ONCE + "step# = ResourceScatterSub(w#, only#, values#) @d#",
            "it writes something else than one row for each entry",
        ),
        (
            "more# = Cumsum(values#, axis) [4,3] @d#\n"
            "step# = ResourceScatterSub(w#, rows#, more#) @d#",
            "its values or rows were not followed from the gradient",
        ),
        (
            "old# = ReadVariableOp(w#) [4,3] @d#\nmixed# = Mul(values#, old#) [4,3] @d#\n"
            "step# = ResourceScatterSub(w#, rows#, mixed#) @d# ^old#",
            "it mixes a table with entries, or entries with others",
        ),
    ],
)
def test_what_is_not_local_to_rows_is_refused(text: str, reason: str) -> None:
    assert refused(text) == reason


def test_a_value_of_the_update_that_the_step_returns_is_refused() -> None:
    assert "returns a value" in refused(DECAYING, outputs=("sum0", "sum1"))
