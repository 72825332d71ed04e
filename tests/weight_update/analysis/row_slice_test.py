"""What of an update on rows is done on rows, added up over all of them, or left to the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tests.graph.text_graph import DIALECT, view_of
from tests.weight_update.analysis.row_body_test import DECAYING, GATHERED
from tf_wu_shard.placement import Combine, Partial
from tf_wu_shard.weight_update.analysis.analyze import analyze
from tf_wu_shard.weight_update.analysis.row_body import weights_by_rows
from tf_wu_shard.weight_update.analysis.types import Analysis, BodyOp, OperandKind

FLOAT = 1
SHAPES = {"w": (4, 3), "m": (4, 3)}
Functions = Mapping[str, tuple[str, str, str]]


def analysis_of(
    text: str, functions: Functions | None = None, outputs: Sequence[str] = ()
) -> Analysis:
    view = view_of(
        GATHERED + text,
        variables=SHAPES,
        trainable=("w",),
        functions=functions,
        outputs=outputs,
    )
    return analyze(view, DIALECT)


def body_of(
    text: str, functions: Functions | None = None, outputs: Sequence[str] = ()
) -> dict[str, BodyOp]:
    """The body of the only update, by the names of its ops on replica 0."""
    analysis = analysis_of(text, functions, outputs)
    assert analysis.refused == ()
    (update,) = analysis.updates
    return {op.ops[0]: op for op in update.body}


def refused(text: str, functions: Functions | None = None) -> str:
    (one,) = (r for r in analysis_of(text, functions).refused if r.variable == "w")
    return one.refusal.reason


def scaled_by(text: str) -> str:
    """Momentum that decays everywhere, with a step `scaled` that these lines make of `moved`."""
    return DECAYING.replace("(w#, moved#)", "(w#, scaled#)").replace("step#", text + "step#")


SCATTERED = "step# = ResourceScatterSub(w#, rows#, scaled#) @d#\n"


def test_a_norm_of_a_table_is_summed_over_shards() -> None:
    norm = "norm# = L2Loss(kept#) [] @d#\nscaled# = Mul(moved#, norm#) [4,3] @d#\n"
    body = body_of(scaled_by(norm))
    assert body["norm0"].sum == Partial((), Combine.SUM, (4, 3), (0, 1), FLOAT)
    assert body["scaled0"].operands[1].kind is OperandKind.SCALAR


def test_a_sum_over_entries_does_not_know_how_many_there_are() -> None:
    body = body_of(
        "total# = Sum(values#, axis) {keep_dims=1} [1,3] @d#\n"
        "scaled# = Mul(values#, total#) [4,3] @d#\n" + SCATTERED
    )
    assert body["total0"].sum == Partial((1, 3), Combine.SUM, (-1, 3), (0,), FLOAT)
    assert body["scaled0"].operands[1].kind is OperandKind.SCALAR


def test_a_sum_of_each_row_is_done_on_rows_and_put_together_for_others() -> None:
    text = DECAYING + "each# = Sum(new#, one1) [4] @d#\n"
    text = "one1 = Const() {value=1} [1]\n" + text
    body = body_of(text, outputs=["each0", "each1"])
    assert body["each0"].sum is None and body["each0"].gathered
    assert not any(op.gathered for name, op in body.items() if name != "each0")


READ_ROWS = """
put# = ResourceScatterAdd(m#, rows#, values#) @d#
kept# = ResourceGather(m#, {rows}) {{batch_dims=0}} [4,3] @d# ^put#
scaled# = Mul(values#, kept#) [4,3] @d#
"""


def test_rows_of_a_slot_are_looked_up_in_its_shard_after_the_same_writes() -> None:
    body = body_of(READ_ROWS.format(rows="rows#") + SCATTERED)
    assert [o.kind for o in body["kept0"].operands] == [OperandKind.HANDLE, OperandKind.GRADIENT]
    assert body["kept0"].variable == "m"
    (update,) = analysis_of(READ_ROWS.format(rows="rows#") + SCATTERED).updates
    assert [v.key for v in update.slots] == ["m"]
    assert weights_by_rows(update) == {"w"}


def test_rows_that_no_entry_names_are_not_looked_up_in_a_shard() -> None:
    text = "other = Placeholder() {T=9} [4]\n" + READ_ROWS.format(rows="other") + SCATTERED
    assert refused(text) == "it looks up something else than the rows of entries"


def test_what_approximates_is_done_on_all_rows_at_once() -> None:
    text = """
    one1 = Const() {value=1} [1]
    each# = Sum(kept#, one1) {keep_dims=1} [4,1] @d#
    root# = Sqrt(each#) [4,1] @d#
    power# = Exp(root#) [4,1] @d#
    scaled# = Mul(moved#, power#) [4,3] @d#
    """
    decaying = DECAYING.replace("(w#, moved#)", "(w#, scaled#)")
    body = body_of(
        decaying.replace("    step#", text + "    step#").replace("step#", text + "step#")
    )
    assert "power0" not in body and body["root0"].gathered
    assert body["scaled0"].operands[1].kind is OperandKind.SLICE


def test_a_table_made_of_what_is_outside_is_made_row_by_row() -> None:
    outer = """
    left = Placeholder() [4,1]
    right = Placeholder() [1,3]
    outer# = Mul(left, right) [4,3] @d#
    scaled# = Mul(moved#, outer#) [4,3] @d#
    """
    body = body_of(
        DECAYING.replace("(w#, moved#)", "(w#, scaled#)").replace("step#", outer + "step#")
    )
    kinds = [operand.kind for operand in body["outer0"].operands]
    assert kinds == [OperandKind.SLICE, OperandKind.SCALAR]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "mean# = Mean(values#, axis) [3] @d#\nscaled# = Mul(values#, mean#) [4,3] @d#\n",
            "it divides by the number of entries",
        ),
        (
            "one1 = Const() {value=1} [1]\neach# = Sum(values#, one1) {keep_dims=1} [4,1] @d#\n"
            "scaled# = Mul(values#, each#) [4,3] @d#\n",
            "it sums over each entry alone",
        ),
        (
            "total# = Sum(rows#, axis) {T=9} [] @d#\nscaled# = Mul(values#, total#) [4,3] @d#\n",
            "it sums the number of each entry's row",
        ),
        (
            "line# = Reshape(values#, one) [12] @d#\n"
            "back# = Reshape(line#, one) [4,3] @d#\nscaled# = Neg(back#) [4,3] @d#\n",
            "its gradient is given another shape",
        ),
    ],
)
def test_what_is_not_known_of_entries_is_refused(text: str, reason: str) -> None:
    assert refused(text + SCATTERED) == reason
