"""Every rule is proved: whole and in shards, an op gives the same, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.selection import cases
from tf_wu_shard.placement import Combine, Cut
from tf_wu_shard.rules import elementwise, registry, shapes, sums
from tf_wu_shard.rules.registry import Family, Rule
from tf_wu_shard.rules.sums import SumRule
from tf_wu_shard.rules.writes import WRITES, Write
from tools.rule_proof import samples
from tools.rule_proof.proofs import PROVED, REFUSED, WRONG, prove, rules
from tools.rule_proof.samples import Call


# Op types share their rules; every run takes a third of them.
@pytest.mark.parametrize(("op_type", "cut"), cases(rules(), {*rules()[::3]}))
def test_every_rule_is_proved(op_type: str, cut: Cut) -> None:
    verdict = prove(op_type, cut)
    assert verdict.outcome == PROVED, verdict.detail
    assert verdict.count >= 8


def with_axis(op_type: str, random: np.random.Generator, shape: tuple[int, ...]) -> Iterator[Call]:
    axis = np.array(0 if op_type == "Cumsum" else [0], np.int32)
    if shape:
        yield Call(op_type, (samples.values(random, shape), axis), (True, False))


def transposed(op_type: str, random: np.random.Generator, shape: tuple[int, ...]) -> Iterator[Call]:
    order = np.arange(len(shape))[::-1].astype(np.int32)
    yield Call(op_type, (samples.values(random, shape), order), (True, False))


@pytest.fixture
def false_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_RULES", dict(registry._RULES))
    special = {"Cumsum": with_axis, "ReverseV2": with_axis, "Transpose": transposed}
    monkeypatch.setattr(samples, "SPECIAL", samples.SPECIAL | special)
    along_lanes = Rule(Family.ELEMENTWISE, elementwise.same_lanes)
    registry.register(along_lanes, "Cumsum", "ReverseV2", "Softmax", "MatrixDeterminant")
    registry.register(Rule(Family.RELABEL, shapes.relabelled), "Transpose")


@pytest.mark.usefixtures("false_rules")
@pytest.mark.parametrize("op_type", ["Cumsum", "ReverseV2", "Softmax", "Transpose"])
def test_a_false_rule_is_caught(op_type: str) -> None:
    verdict = prove(op_type)
    assert verdict.outcome == WRONG
    assert verdict.detail.startswith(f"{op_type} of ") and "in shards" in verdict.detail


@pytest.mark.usefixtures("false_rules")
def test_a_rule_that_takes_no_call_is_not_proved() -> None:
    # Its kernel takes none of the samples: they are no square matrices.
    assert prove("MatrixDeterminant").outcome == REFUSED


def test_a_false_table_of_a_fused_update_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    # A slot too few: the second moments would be taken for a scalar.
    false = Write(2, 4, is_fused=True)
    monkeypatch.setitem(WRITES, "ResourceApplyProximalAdagrad", false)
    with pytest.raises(Exception, match="scalar"):
        prove("ResourceApplyProximalAdagrad")


@pytest.mark.parametrize(
    ("op_type", "false"),
    [
        ("Sum", SumRule(squares=True)),
        ("Mean", SumRule()),
        ("L2Loss", SumRule(squares=True)),
        ("EuclideanNorm", SumRule(squares=True, half=True)),
        ("Max", SumRule(Combine.MIN)),
        ("Min", SumRule(Combine.MAX, squares=True)),
        ("Any", SumRule(Combine.MIN)),
        ("All", SumRule(Combine.MAX)),
    ],
)
def test_a_false_rule_of_a_sum_is_caught(
    monkeypatch: pytest.MonkeyPatch, op_type: str, false: SumRule
) -> None:
    monkeypatch.setitem(sums.SUMS, op_type, false)
    verdict = prove(op_type)
    assert verdict.outcome == WRONG and verdict.detail.startswith(f"{op_type} of ")


@pytest.mark.parametrize(
    ("op_type", "found"), [("L2Loss", "nan"), ("Max", "99"), ("Any", "True"), ("All", "False")]
)
def test_a_sum_that_looks_at_padding_is_caught(
    monkeypatch: pytest.MonkeyPatch, op_type: str, found: str
) -> None:
    def with_padding(own: object, terms: object, shard: object, layout: object) -> object:
        return shard

    own_shard = "tf_wu_shard.weight_update.rewrite.own_shard.OwnShard"
    monkeypatch.setattr(f"{own_shard}._without_padding", with_padding)
    verdict = prove(op_type)
    assert verdict.outcome == WRONG and found in verdict.detail


def test_an_op_of_no_table_is_refused() -> None:
    verdict = prove("MatMul")
    assert (verdict.outcome, verdict.detail) == (REFUSED, "no rule for MatMul")
