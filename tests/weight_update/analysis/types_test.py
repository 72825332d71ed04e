"""Findings say what is asked of them, and are changed by making others of them."""

from __future__ import annotations

import dataclasses

from tf_wu_shard import refusals
from tf_wu_shard.weight_update.analysis.types import (
    Analysis,
    RefusedUpdate,
    UpdatedVariable,
    WeightUpdate,
    all_entries,
)

WEIGHT = UpdatedVariable("w", ("w0", "w1"), (4,), 1, is_slot=False, trainable=True)
SLOT = UpdatedVariable("m", ("m0", "m1"), (4,), 1, is_slot=True)
SEEN = dataclasses.replace(SLOT, key="seen", is_slot=False)
SECOND = dataclasses.replace(WEIGHT, key="w2")
UPDATE = WeightUpdate((WEIGHT, SECOND, SEEN, SLOT), (0,), (), ("d0", "d1"))
WHY = refusals.Updates.RETURNED.at("branch")
REFUSED = RefusedUpdate("b", (1,), WHY, (dataclasses.replace(WEIGHT, key="b"), SLOT))
ANALYSIS = Analysis("print", 2, (), (UPDATE,), (REFUSED,), ())


def test_the_variables_of_an_update_are_weights_or_slots_and_reported_as_what_they_are_for() -> (
    None
):
    assert UPDATE.name == "w"
    assert UPDATE.weights == (WEIGHT, SECOND, SEEN) and UPDATE.slots == (SLOT,)
    assert UPDATE.whole_slots == (SEEN,)
    assert UPDATE.reported_weights == (WEIGHT, SECOND)
    assert UPDATE.reported_slots == (SLOT, SEEN)


def test_a_refused_update_reports_what_it_would_have_updated_as_far_as_it_is_known() -> None:
    assert REFUSED.name == "b" and [v.key for v in REFUSED.reported_weights] == ["b"]
    assert REFUSED.reported_slots == (SLOT,)
    unknown = dataclasses.replace(REFUSED, variables=())
    assert unknown.reported_weights == () == unknown.reported_slots


def test_a_mean_that_is_kept_in_a_variable_that_nobody_trains_is_no_update_of_a_weight() -> None:
    untrained = refusals.Updates.NOT_TRAINABLE.at("queue")
    queue = RefusedUpdate("queue", (1,), untrained, (dataclasses.replace(SEEN, key="queue"),))
    assert queue.reported_weights == ()
    # A weight that is declared to be untrained and has slots is trained all the same.
    assert dataclasses.replace(REFUSED, refusal=untrained).reported_weights == REFUSED.variables[:1]


def test_without_updates_each_weight_is_refused_for_the_reason() -> None:
    reason = refusals.Topology.COMPILED_BY_XLA.at()
    found = ANALYSIS.without_updates(reason)
    assert found.updates == ()
    assert [(r.variable, r.reductions, r.refusal) for r in found.refused] == [
        ("w", (0,), reason),
        ("w2", (0,), reason),
        ("seen", (0,), reason),
        ("b", (1,), WHY),
    ]


def test_only_what_was_refused_at_a_kept_branch_has_a_second_reason() -> None:
    other = RefusedUpdate("c", (2,), refusals.Updates.RETURNED.at("elsewhere"))
    analysis = dataclasses.replace(ANALYSIS, refused=(REFUSED, other))
    besides = refusals.Updates.NOT_TRAINABLE.at("inner")
    inside, outside = analysis.with_reasons({"branch": besides}).refused
    assert inside.refusal == WHY.beside(besides) and besides.reason in inside.refusal.reason
    assert outside is other


def test_what_was_refused_at_a_kept_call_has_the_reason_of_that() -> None:
    analysis = dataclasses.replace(ANALYSIS, refused=(REFUSED,))
    why = refusals.Calls.COMPILED_WITH.at("branch", function="f", op_type="Mean")
    (refused,) = analysis.with_reasons({"branch": why}).refused
    assert refused.refusal == why and refused.variable == REFUSED.variable


def test_each_gradient_has_a_list_of_entries_of_its_own() -> None:
    assert all_entries(1) == all_entries(1) != all_entries(2)
