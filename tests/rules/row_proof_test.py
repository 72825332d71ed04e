"""The proof of rules for rows and entries catches rules that are false."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator

import numpy as np
import pytest

from tf_wu_shard.placement import Combine, Cut
from tf_wu_shard.rules import elementwise, registry, sums
from tf_wu_shard.rules.registry import Family, Rule
from tf_wu_shard.rules.sums import SumRule
from tf_wu_shard.rules.writes import WRITES, Write
from tools.rule_proof import row_samples
from tools.rule_proof.proofs import REFUSED, WRONG, prove
from tools.rule_proof.row_samples import RowCall
from tools.rule_proof.samples import Call, values
from tools.rule_proof.tables import ALL, Table


def over_rows(op_type: str, random: np.random.Generator, table: Table) -> Iterator[RowCall]:
    """Along the first axis, of a table and of entries."""
    axis = np.array(0 if op_type == "Cumsum" else [0], np.int32)
    count = len(table.entries[ALL])
    for shape, placement in (
        (table.shape, row_samples.of_table(table.shape)),
        ((count, *table.shape[1:]), row_samples.of_entries(table)),
    ):
        call = Call(op_type, (values(random, shape), axis), (True, False))
        yield RowCall(call, table, (placement, None))


@pytest.fixture
def false_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules that call an op along rows one of each row alone."""
    monkeypatch.setattr(registry, "_RULES", dict(registry._RULES))
    special = dict.fromkeys(("Cumsum", "ReverseV2"), over_rows)
    monkeypatch.setattr(row_samples, "SPECIAL", row_samples.SPECIAL | special)
    monkeypatch.setattr(elementwise, "EXACT", elementwise.EXACT | special.keys())
    registry.register(Rule(Family.ELEMENTWISE, rows=elementwise.each_row), *special)


@pytest.mark.usefixtures("false_rules")
@pytest.mark.parametrize("op_type", ["Cumsum", "ReverseV2"])
@pytest.mark.parametrize("what", ["TABLE", "ENTRIES"])
def test_an_op_that_reads_other_rows_or_entries_is_caught(
    monkeypatch: pytest.MonkeyPatch, op_type: str, what: str
) -> None:
    def of_one_kind(*args: object) -> Iterator[RowCall]:
        for call in over_rows(*args):  # type: ignore[arg-type]
            if call.placements[0] is not None and call.placements[0].what.name == what:
                yield call

    monkeypatch.setitem(row_samples.SPECIAL, op_type, of_one_kind)
    verdict = prove(op_type, Cut.ROWS)
    assert verdict.outcome == WRONG
    assert f"as ['{what}']" in verdict.detail and "in shards" in verdict.detail


@pytest.mark.parametrize(
    ("op_type", "false"),
    [
        ("Sum", SumRule(squares=True)),
        ("Mean", SumRule()),
        ("Max", SumRule(Combine.MIN)),
        ("All", SumRule(Combine.MAX)),
    ],
)
def test_a_false_rule_of_a_sum_over_rows_is_caught(
    monkeypatch: pytest.MonkeyPatch, op_type: str, false: SumRule
) -> None:
    monkeypatch.setitem(sums.SUMS, op_type, false)
    verdict = prove(op_type, Cut.ROWS)
    assert verdict.outcome == WRONG and verdict.detail.startswith(f"{op_type} of ")


def test_a_part_of_a_list_that_is_marked_as_all_of_it_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    some = functools.partial(row_samples.all_or_none, ends=(1,))
    monkeypatch.setitem(row_samples.SPECIAL, "StridedSlice", some)
    assert prove("StridedSlice", Cut.ROWS).outcome == WRONG


def test_a_false_partner_of_a_scatter_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    false = dataclasses.replace(WRITES["ResourceScatterUpdate"], on_values="TensorScatterAdd")
    monkeypatch.setitem(WRITES, "ResourceScatterUpdate", false)
    verdict = prove("ResourceScatterUpdate", Cut.ROWS)
    assert verdict.outcome == WRONG and "into values" in verdict.detail


def test_entries_scattered_in_another_order_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Table.own

    def backwards(table: Table, value: np.ndarray, placement: object, shard: int) -> np.ndarray:
        found = own(table, value, placement, shard)  # type: ignore[arg-type]
        return found[::-1] if getattr(placement, "entries", "") and found.ndim else found

    monkeypatch.setattr(Table, "own", backwards)
    assert prove("ResourceScatterAdd", Cut.ROWS).outcome == WRONG
    assert prove("UnsortedSegmentSum", Cut.ROWS).outcome == WRONG


def test_a_false_table_of_a_sparse_update_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    # The gradient and the numbers of rows in each other's places.
    false = Write(2, 4, rows=3, is_fused=True)
    monkeypatch.setitem(WRITES, "ResourceSparseApplyMomentum", false)
    with pytest.raises(Exception, match=r"compute|expected|type"):
        prove("ResourceSparseApplyMomentum", Cut.ROWS)


def test_an_op_of_no_table_is_refused_on_rows() -> None:
    verdict = prove("MatMul", Cut.ROWS)
    assert (verdict.outcome, verdict.detail) == (REFUSED, "no rule for MatMul")
