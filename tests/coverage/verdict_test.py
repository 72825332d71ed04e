"""A cell says sharded only of what was sharded, and exact only of what is."""

from __future__ import annotations

import pytest

from tf_wu_shard.report.report import Bytes, Report, ShardedVariable
from tf_wu_shard.report.share import LeftAloneVariable
from tools.coverage.table import Cell
from tools.coverage.verdict import agree, judged, steady

MATRICES = ("first/kernel", "second/kernel")


def report(*sharded: str, left: dict[str, str] | None = None, note: str = "") -> Report:
    return Report(
        function="step",
        verdict="",
        num_replicas=2,
        variables=tuple(
            ShardedVariable(name, (4, 4), "float32", "flat 16/2", ("m",), 0, 0) for name in sharded
        ),
        left_alone=tuple(LeftAloneVariable(*item, "") for item in (left or {}).items()),
        notes=(note,) if note else (),
        slot_bytes_per_replica=Bytes(0, 0),
        wire_bytes=Bytes(0, 0),
        emitted={},
    )


SHARDED = report(*MATRICES, left={"first/bias": "too small"})
PARTLY = report("first/kernel", left={"second/kernel": "no rule for Foo"})
ALONE = report(left={name: "no rule for Foo" for name in MATRICES})


def test_both_matrices_in_shards_and_not_a_bit_apart_is_exact() -> None:
    assert judged(MATRICES, (), [SHARDED], 0.0) == Cell("exact")


def test_roundings_are_named_by_their_bound() -> None:
    assert judged(MATRICES, (), [SHARDED], 1e-7) == Cell("within 5e-6")
    assert judged(MATRICES, (), [SHARDED], 6e-6) == Cell("within 2e-5")
    assert judged(MATRICES, (), [SHARDED], 3e-5) == Cell("WRONG: 3e-05 apart")


def test_what_is_left_alone_is_named_with_its_reason() -> None:
    assert judged(MATRICES, (), [PARTLY], 0.0) == Cell("partly, exact", ("no rule for Foo",))
    assert judged(MATRICES, (), [ALONE], 0.0) == Cell("alone", ("no rule for Foo",))
    refused = report(note="several programs")
    assert judged(MATRICES, (), [refused], 0.0) == Cell("alone", ("several programs",))


@pytest.mark.parametrize(
    ("reports", "whole", "apart"),
    [
        pytest.param([SHARDED], (), 1e-4, id="farther than rounding"),
        pytest.param([SHARDED], (), float("inf"), id="not finite"),
        pytest.param([ALONE], (), 1e-9, id="apart with nothing sharded"),
        pytest.param([SHARDED], ("m",), 0.0, id="a slot whole without a reason"),
        pytest.param([report("first/kernel")], (), 0.0, id="a matrix alone without a reason"),
        pytest.param([], (), 0.0, id="no report"),
    ],
)
def test_what_must_not_be_is_wrong(reports: list[Report], whole: list[str], apart: float) -> None:
    assert judged(MATRICES, whole, reports, apart).text.startswith("WRONG")


def test_a_slot_that_stays_whole_is_named() -> None:
    note = "slot m stays whole, put together in each step: the step also reads it"
    assert judged(MATRICES, ("m",), [report(*MATRICES, note=note)], 0.0) == Cell("exact", (note,))


def test_reasons_lose_the_numbers_of_names() -> None:
    assert (
        steady("captured by cond_true_1234, traced before")
        == "captured by cond_true, traced before"
    )


def test_a_cell_found_nearer_than_the_page_says_agrees_and_one_farther_does_not() -> None:
    exact, near, far = Cell("exact"), Cell("within 5e-6"), Cell("WRONG: 3e-05 apart")
    assert agree(near, near) and agree(near, exact) and agree(Cell("within 2e-5"), near)
    assert not agree(exact, near) and not agree(near, far)
    assert not agree(near, Cell("within 2e-5"))


def test_a_cell_with_another_reason_or_kind_does_not_agree() -> None:
    assert not agree(Cell("alone", ("a",)), Cell("alone", ("b",)))
    assert not agree(Cell("partly, exact", ("a",)), Cell("exact", ("a",)))
    assert not agree(Cell("n/a: RuntimeError"), Cell("exact"))
    assert agree(Cell("n/a: RuntimeError"), Cell("n/a: RuntimeError"))
