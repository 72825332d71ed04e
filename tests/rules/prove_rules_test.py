"""The prover as a command: a line for each op, and an exit status that a wrong rule changes."""

from __future__ import annotations

import pytest

from tf_wu_shard.rules import elementwise, registry
from tf_wu_shard.rules.registry import Family, Rule
from tools.prove_rules import main


def test_it_prints_a_verdict_for_each_op_that_was_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--op", "Mul", "--op", "MatMul"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[:3] for line in lines[:2]] == [
        ["proved", "Mul", "elements"],
        ["proved", "Mul", "rows"],
    ]
    assert lines[0][-1] == "calls"
    assert lines[2] == ["refused", "MatMul", "elements", "no", "rule", "for", "MatMul"]
    assert " ".join(lines[3]) == "2 proved, 1 refused, 0 wrong"


def test_a_wrong_rule_fails_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(registry, "_RULES", dict(registry._RULES))
    rule = Rule(Family.ELEMENTWISE, elementwise.same_lanes, elementwise.each_row)
    registry.register(rule, "Softmax")
    assert main(["--op", "Softmax", "--op", "Neg", "--seed", "3"]) == 1
    *lines, total = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines] == [
        ["proved", "Neg", "elements"],
        ["wrong", "Softmax", "elements"],
        ["proved", "Neg", "rows"],
        ["wrong", "Softmax", "rows"],
    ]
    assert "in shards" in lines[1]
    assert total == "2 proved, 0 refused, 2 wrong"
