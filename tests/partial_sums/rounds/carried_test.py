"""What carries a step's sums, which of them count batches, and what replicas give to one."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.partial_sums.made_reductions import reduction
from tests.partial_sums.worker_steps import GROUP, REDUCED, STEP, sparse_parts, worker_step
from tf_wu_shard.dtypes import FLOAT32
from tf_wu_shard.errors import WuShardError
from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.op import Value
from tf_wu_shard.partial_sums.rounds.carried import (
    Carried,
    added,
    carried_sums,
    counts_of_batches,
    joined,
    names_of,
    sums_of_workers,
)
from tf_wu_shard.step.step import Step

LOSS = """
l0 = L2Loss(x0) [] @d0
loss0 = CollectiveReduceV2(l0, two, key) {merge_op=Add final_op=Id} [] @d0
"""

COUNT = """
next0 = IteratorGetNextAsOptional() {T=21} @d0
has0 = OptionalHasValue(next0) {T=10} [] @d0
one0 = Const() {value=1} @d0
number0 = Mul(has0, one0) [] @d0
count0 = CollectiveReduceV2(number0, two, key) {merge_op=Add final_op=Id} [] @d0
"""

# Of two replicas of each worker; what they have is added up before workers sum it.
PAIR = GROUP + "x# = Placeholder() [4] @d#\nown = AddN(x0, x1) [4] @d0\n"
OF_WORKERS = "total = CollectiveReduceV2({}, two, key) {{merge_op=Add final_op=Id}} [4] @d0\n"


def names(sums: list[Carried]) -> list[tuple[str, ...]]:
    return [names_of(one) for one in sums]


def test_a_step_that_sums_nothing_carries_nothing() -> None:
    step = worker_step(GROUP)
    assert carried_sums(step) == [] and counts_of_batches(step) == ([], [])


def test_sums_come_in_the_order_of_the_ops_whatever_they_are_of() -> None:
    step = worker_step(REDUCED + LOSS + STEP, outputs=["loss0"])
    order = [op.name for op in step.view]
    assert names(carried_sums(step)) == sorted(
        [("sum0",), ("loss0",)], key=lambda one: order.index(one[0])
    )


def test_a_sum_is_carried_by_an_op_of_each_replica_of_the_worker() -> None:
    text = """
    x# = Placeholder() [4] @d#
    sum# = CollectiveReduceV2(x#, four, key) {merge_op=Add final_op=Id} [4] @d#
    step# = AssignSubVariableOp(w#, sum#) @d#
    """
    assert names(carried_sums(worker_step(GROUP + text, copies=2))) == [("sum0", "sum1")]


def test_gradients_that_travel_in_one_pack_are_carried_once() -> None:
    text = """
    a0 = Placeholder() [4] @d0
    b0 = Placeholder() [2] @d0
    zero = Const() {value=0}
    pack0 = ConcatV2(a0, b0, zero) [6] @d0
    sum0 = CollectiveReduceV2(pack0, two, key) {merge_op=Add final_op=Id} [6] @d0
    split0 = SplitV(sum0, two, zero) [4] [2] @d0
    w_step0 = AssignSubVariableOp(w0, split0) @d0
    v_step0 = AssignSubVariableOp(v0, split0:1) @d0
    """
    step = worker_step(GROUP + text, variables={"w": (4,), "v": (2,)}, trainable=("w", "v"))
    assert len(step.reductions) == 2
    assert names(carried_sums(step)) == [("sum0",)]


def test_lists_of_rows_are_no_sums() -> None:
    text = "v0 = Placeholder() [4]\nr0 = Placeholder() {T=3} [1]\nshape0 = Const() {value=1}\n"
    text += "rows0 = If(v0, v0, r0, shape0) [?] [?] [?] @d0\n"
    step = worker_step(REDUCED + STEP + text, sparse=sparse_parts("rows"))
    assert names(carried_sums(step)) == [("sum0",)]


def test_a_mean_over_replicas_is_no_plain_sum() -> None:
    step = worker_step(REDUCED.replace("final_op=Id", "final_op=Div") + STEP)
    said = "sum0 (CollectiveReduceV2) is no plain sum: Add, Div"
    with pytest.raises(WuShardError, match=re.escape(said)):
        carried_sums(step)


def test_a_sum_of_what_iterators_say_counts_batches() -> None:
    step = worker_step(REDUCED + STEP + COUNT, outputs=["count0"])
    counts, others = counts_of_batches(step)
    assert (names(counts), names(others)) == ([("count0",)], [("sum0",)])


@pytest.mark.parametrize(
    ("old", "new"), [("Mul(has0, one0)", "Mul(has0, x0)"), ("Mul(has0, one0)", "Mul(one0, one0)")]
)
def test_what_follows_from_more_or_from_no_iterator_is_no_count(old: str, new: str) -> None:
    step = worker_step(REDUCED + STEP + COUNT.replace(old, new), outputs=["count0"])
    counts, others = counts_of_batches(step)
    assert counts == [] and {*names(others)} == {("sum0",), ("count0",)}


def of_workers(text: str, **keywords: Any) -> list[str]:
    return [op.name for op in sums_of_workers(_pair(text, **keywords))]


def _pair(text: str, **keywords: Any) -> Step:
    variables = {"w": (4,), "metric": (4,)}
    return worker_step(PAIR + text, copies=2, variables=variables, **keywords)


def test_replicas_may_have_added_up_what_workers_sum_for_the_caller() -> None:
    text = OF_WORKERS.format("own")
    assert of_workers(text, outputs=["total"]) == ["total"]
    assert names(carried_sums(_pair(text, outputs=["total"]))) == [("total",)]


def test_such_a_sum_may_be_written_to_a_metric_and_to_no_weight() -> None:
    text = OF_WORKERS.format("own") + "half = Mul(total, total) [4] @d0\n"
    assert of_workers(text + "put = AssignAddVariableOp(metric0, half) @d0\n") == ["total"]
    assert of_workers(text + "put = AssignSubVariableOp(w1, half) @d0\n") == []
    # What else is done with it is not known.
    assert of_workers(text + "said = Print(half) @d0\n") == []


def test_a_number_of_batches_may_be_written_to_a_weight() -> None:
    text = """
    next# = IteratorGetNextAsOptional() {T=21} @d#
    has# = OptionalHasValue(next#) {T=10} [4] @d#
    both = AddN(has0, has1) [4] @d0
    """
    text += OF_WORKERS.format("both") + "put = AssignSubVariableOp(w0, total) @d0\n"
    assert of_workers(text) == ["total"]
    counts, others = counts_of_batches(_pair(text))
    assert (names(counts), others) == ([("total",)], [])


def test_a_sum_of_other_members_than_workers_is_none_of_theirs() -> None:
    text = OF_WORKERS.format("own").replace("two", "key")
    assert of_workers(text, outputs=["total"]) == []


def test_a_maximum_of_workers_is_no_plain_sum() -> None:
    step = _pair(OF_WORKERS.format("own").replace("Add", "Max"), outputs=["total"])
    with pytest.raises(WuShardError, match="is no plain sum: Max, Id"):
        carried_sums(step)


def test_workers_of_one_replica_have_no_other_sums() -> None:
    text = GROUP + "x0 = Placeholder() [4] @d0\n" + OF_WORKERS.format("x0")
    step = worker_step(text.replace("Add", "Max"), outputs=["total"])
    assert [refusal.where for refusal in step.refused] == ["total"]
    assert sums_of_workers(step) == []


def test_a_replica_alone_gives_its_own_and_several_give_what_they_have_together() -> None:
    step = _pair(OF_WORKERS.format("own"), outputs=["total"])
    (total,) = carried_sums(step)
    builder = GraphBuilder(step.view.ops, step.view.dtype)
    at = builder.at("d0", "scope")
    assert added(at, total) == Value("own") and not builder.nodes
    both = tuple(step.view.ops[name] for name in ("own", "total"))
    made = added(at, both)
    (node,) = builder.nodes
    assert (made.op, node.op, [*node.input]) == ("scope/own/own", "AddN", ["x0", "own"])


def test_lists_of_several_replicas_stand_one_after_the_other() -> None:
    builder = GraphBuilder(["x0", "x1"], lambda value: FLOAT32)
    at = builder.at("d0", "scope")
    alone = reduction(0, "x0", "rows0", "rows0")
    assert joined(at, alone) == Value("x0") and not builder.nodes
    joined(at, reduction(0, "x0 x1", "rows0 rows1", "rows0 rows1"))
    axis, node = builder.nodes
    assert (node.op, [*node.input]) == ("ConcatV2", ["x0", "x1", axis.name])
    assert axis.attr["value"].tensor.int_val[0] == 0
