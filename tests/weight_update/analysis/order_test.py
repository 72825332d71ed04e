"""Which gradients wait for the updates of others, and when each is ready."""

from __future__ import annotations

from tests.graph.text_graph import view_of
from tf_wu_shard.grounds.in_process.recognise import recognise_in_process
from tf_wu_shard.replicas import in_this_process
from tf_wu_shard.step.gradients import gradient_reductions
from tf_wu_shard.step.reductions import GradientReduction
from tf_wu_shard.weight_update.analysis.order import with_order

# The second gradient is computed with the first weight as updated, the third with a sum.
STEP = """
size = Const() {value=2}
key = Const() {value=1}
w# = VarHandleOp() @d#
late# = Square() [6] @d#
first# = Mul() [6] @d#
sum_first# = CollectiveReduceV2(first#, size, key) {merge_op=Add final_op=Id} [6] @d#
assign# = AssignVariableOp(w#, sum_first#) @d#
read# = ReadVariableOp(w#) [6] @d# ^assign#
second# = Mul(read#) [6] @d#
sum_second# = CollectiveReduceV2(second#, size, key) {merge_op=Add final_op=Id} [6] @d#
third# = Mul(sum_second#) [6] @d#
sum_third# = CollectiveReduceV2(third#, size, key) {merge_op=Add final_op=Id} [6] @d#
sum_late# = CollectiveReduceV2(late#, size, key) {merge_op=Add final_op=Id} [6] @d#
all# = IdentityN(sum_third#, sum_late#) [6] [6] @d#
"""


def ordered(updating: set[int]) -> dict[str, GradientReduction]:
    view = view_of(STEP, outputs=["all0:0", "all1:0", "all0:1", "all1:1"])
    found = gradient_reductions(view, recognise_in_process(view, in_this_process(("d0", "d1")))[0])
    return {r.operands[0].op: r for r in with_order(view, found, updating)}


def test_a_gradient_comes_after_the_updates_that_it_is_computed_with() -> None:
    found = ordered({0, 1, 2, 3})
    depths = {name: reduction.depth for name, reduction in found.items()}
    assert depths == {"first0": 0, "second0": 1, "third0": 2, "late0": 0}


def test_a_sum_of_no_update_makes_nobody_wait() -> None:
    keys = {name: reduction.key for name, reduction in ordered(set()).items()}
    found = ordered({keys["first0"], keys["third0"]})
    assert (found["second0"].depth, found["third0"].depth) == (1, 1)
    assert {reduction.depth for reduction in ordered(set()).values()} == {0}


def test_gradients_are_ready_in_the_order_in_which_they_are_computed() -> None:
    found = ordered({0, 1, 2, 3})
    turn = sorted(found, key=lambda name: found[name].ready)
    assert turn == ["late0", "first0", "second0", "third0"]
