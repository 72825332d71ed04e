"""One call says all that is known of a graph: who reduces what, the updates, and what is none."""

from __future__ import annotations

from tests.graph.text_graph import DIALECT, OWNERS_DIALECT, view_of
from tests.weight_update.analysis.steps import (
    MOMENTUM,
    SHAPES,
    STEP,
    analysis_of,
    reasons_of,
    sharded,
)
from tf_wu_shard import refusals
from tf_wu_shard.weight_update.analysis.analyze import analyze

# A reduction that is no sum.
LARGEST = """
y# = Placeholder() [4] @d#
most# = CollectiveReduceV2(y#, size, key) {merge_op=Max final_op=Id} [4] @d#
"""


def test_an_update_is_found_with_the_gradient_that_feeds_it() -> None:
    found = analysis_of(MOMENTUM, replicas=3)
    assert (found.num_replicas, found.refused, found.refusals) == (3, (), ())
    (update,) = found.updates
    assert [v.key for v in update.variables] == ["w", "m"] and update.reductions == (0,)
    assert [r.operands[2].op for r in found.reductions_of(update)] == ["g2"]


def test_a_graph_that_reduces_nothing_has_no_replicas() -> None:
    view = view_of("x# = Placeholder() [4]\n" + STEP.format("x#"), variables={"w": (4,)})
    found = analyze(view, DIALECT)
    assert (found.num_replicas, found.reductions, found.updates) == (0, (), ())
    assert found.fingerprint == view.fingerprint


def test_the_findings_are_pinned_to_their_graph() -> None:
    one, other = analysis_of(MOMENTUM), analysis_of(MOMENTUM.replace("Sub", "Add"))
    assert one.fingerprint == analysis_of(MOMENTUM).fingerprint != other.fingerprint


def test_a_refused_update_has_its_weight_and_the_slots_that_the_graph_shows() -> None:
    text = MOMENTUM.replace("w#, moved#", "w#, odd#")
    found = analysis_of(text.replace("step#", "odd# = Cumsum(moved#) [4] @d#\nstep#"))
    assert sharded(found) == [] and reasons_of(found) == {"w": "no rule for Cumsum (odd0)"}
    assert [(v.key, v.is_slot) for v in found.refused[0].variables] == [("w", False), ("m", True)]


def test_why_a_reduction_is_left_is_said_of_the_weight_that_it_updates_or_of_none() -> None:
    lost = analysis_of(LARGEST + STEP.format("most#"), variables={"w": (4,)})
    (refused,) = lost.refused
    assert refused.variable == "w" and refused.refusal.kind is refusals.Topology.NO_SUM
    alone = analysis_of(LARGEST + STEP.format("sum#"), variables={"w": (4,)}, outputs=("most0",))
    assert sharded(alone) == ["w"] and alone.refused == ()
    assert {r.kind for r in alone.refusals} == {refusals.Topology.NO_SUM}
    # It is said once.
    assert all(r != refused.refusal for r in lost.refusals)


def test_only_where_a_replica_may_own_an_update_another_way_is_tried() -> None:
    text = "odd# = Cumsum(sum#) [4] @d#\n" + STEP.format("odd#")
    assert sharded(analysis_of(text, variables=SHAPES)) == []
    found = analysis_of(text, variables=SHAPES, dialect=OWNERS_DIALECT)
    assert [(u.name, u.whole) for u in found.updates] == [("w", True)] and found.refused == ()
