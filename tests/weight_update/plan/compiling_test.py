"""Which updates a plan hands to XLA, how, and why not the others."""

from __future__ import annotations

import dataclasses

import pytest

from tests.weight_update.plan.analyses import Weight, analysis_of
from tf_wu_shard import refusals
from tf_wu_shard.config import CompileUpdate, ShardingOptions
from tf_wu_shard.grounds.dialect import Gathered
from tf_wu_shard.layout import AnyLayout, OwnerLayout, flat_layout, owner_layout, row_layout
from tf_wu_shard.preferences import Preferences
from tf_wu_shard.report.report import as_text
from tf_wu_shard.report.summary import summarize
from tf_wu_shard.weight_update.analysis.types import Analysis
from tf_wu_shard.weight_update.plan.compiling import AS_ASKED_FOR, against_compiling, how_compiled
from tf_wu_shard.weight_update.plan.planner import make_plan

COMPILING = Preferences(1, 1, min_compiled=20)
KINDS = refusals.Compiling


def step(device: str) -> Analysis:
    """A step that updates a weight of shards of 32 elements, and one of 16, on such devices."""
    analysis = analysis_of([Weight("w", (100,), ("m",)), Weight("b", (60,), ("n",))])
    updates = [dataclasses.replace(u, devices=(device,) * 4) for u in analysis.updates]
    return dataclasses.replace(analysis, updates=tuple(updates))


@pytest.mark.parametrize(
    ("asked", "how"), [(None, "exact"), ("exact", "exact"), ("fast", "fast"), (False, "")]
)
def test_cpus_compile_as_they_are_asked_to_and_others_do_not(
    asked: CompileUpdate | None, how: str
) -> None:
    options = ShardingOptions(compile_update=asked)
    assert how_compiled(step("/device:CPU:1"), options, COMPILING) == how
    assert how_compiled(step("/device:GPU:1"), options, COMPILING) == ""
    assert how_compiled(step("/device:CPU:1"), options, Preferences(1, 1)) == ""


@pytest.mark.parametrize(
    ("layout", "asked", "kind"),
    [
        (flat_layout((100,), 4, 4), None, None),
        (flat_layout((60,), 4, 4), None, KINDS.SMALL_SHARDS),
        (flat_layout((60,), 4, 4), "exact", None),
        (row_layout((64, 8), 4, 4), "fast", KINDS.ROWS_LOOKED_UP),
        (owner_layout((64, 8), 4, 1), "exact", KINDS.LEFT_TO_AN_OWNER),
    ],
)
def test_what_is_too_small_or_of_another_kind_stays_open(
    layout: AnyLayout | OwnerLayout, asked: CompileUpdate | None, kind: KINDS | None
) -> None:
    found = against_compiling(layout, ShardingOptions(compile_update=asked), COMPILING)
    assert (found and found.kind) == kind


def test_the_report_says_how_many_are_compiled_and_why_the_others_are_not() -> None:
    analysis = step("/device:CPU:0")
    plan = make_plan(analysis, ShardingOptions(), COMPILING)
    report = summarize("f", plan, {}, "")
    why = "its shards have fewer than 20 elements"
    assert [v.open_because for v in report.variables] == ["", why]
    assert f"compiled by XLA, exact: updates of 1 of 2; 1 not: {why}" in as_text(report)
    left_open = {"w": KINDS.DIVIDES_BY_ROOT.at()}
    report = summarize("f", plan, {}, "", left_open)
    assert report.variables[0].open_because == KINDS.DIVIDES_BY_ROOT.at().reason
    assert "compiled by XLA" not in as_text(report)


def test_a_plan_of_open_ops_gives_no_reasons() -> None:
    analysis = step("/device:CPU:0")
    plan = make_plan(analysis, ShardingOptions(compile_update=False), COMPILING)
    report = summarize("f", plan, {}, "")
    assert report.compile_update == ""
    assert [v.open_because for v in report.variables] == ["", ""]


@pytest.mark.parametrize("asked", [None, False])
def test_what_the_step_has_compiled_is_compiled_on_any_device(asked: CompileUpdate | None) -> None:
    analysis = step("/device:GPU:0")
    first, *others = analysis.updates
    compiled = dataclasses.replace(first, compiled_in=frozenset({"call"}))
    analysis = dataclasses.replace(analysis, updates=(compiled, *others))
    plan = make_plan(analysis, ShardingOptions(compile_update=asked), COMPILING)
    assert [v.compiled for v in plan.variables] == [AS_ASKED_FOR, ""]
    report = summarize("f", plan, {}, "")
    assert [v.compiled for v in report.variables] == [AS_ASKED_FOR, ""]
    assert "compiled by XLA, as asked for: updates of 1 of 2" in as_text(report)


def test_what_the_step_has_compiled_is_left_alone_where_it_would_not_be_compiled() -> None:
    analysis = step("/device:CPU:0")
    gathered = dataclasses.replace(analysis.reductions[0], gathered=Gathered.VALUES)
    reductions = (gathered, *analysis.reductions[1:])
    for changes, what in (
        ({"whole": True}, "done by one replica"),
        ({"functions": (None,)}, "a function of whole tensors"),
        ({}, "rows of a table"),
    ):
        first, *others = analysis.updates
        asked = dataclasses.replace(first, compiled_in=frozenset({"call"}), **changes)
        found = dataclasses.replace(
            analysis,
            updates=(asked, *others),
            reductions=analysis.reductions if changes else reductions,
        )
        plan = make_plan(found, ShardingOptions(min_elements=1), COMPILING)
        (left,) = plan.left_alone
        assert left.refusal.kind is refusals.Plan.COMPILED_WHOLE
        assert what in left.refusal.reason
