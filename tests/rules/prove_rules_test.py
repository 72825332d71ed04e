"""The prover as a command: a line for each op, and an exit status that a wrong rule changes."""

from __future__ import annotations

import pytest

from tf_wu_shard.rules import registry
from tools.prove_rules import main


def test_it_prints_a_verdict_for_each_op_that_was_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--op", "Mul", "--op", "MatMul"]) == 0
    first, second, total = capsys.readouterr().out.splitlines()
    assert first.split()[:2] == ["proved", "Mul"] and first.endswith("calls")
    assert second.split() == ["refused", "MatMul", "no", "rule", "for", "MatMul"]
    assert total == "1 proved, 1 refused, 0 wrong"


def test_a_wrong_rule_fails_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(registry, "_RULES", dict(registry._RULES))
    registry.register(registry.Family.ELEMENTWISE, registry.same_lanes, "Softmax")
    assert main(["--op", "Softmax", "--op", "Neg", "--seed", "3"]) == 1
    first, second, total = capsys.readouterr().out.splitlines()
    assert first.startswith("wrong    Softmax") and "in shards" in first
    assert second.startswith("proved   Neg")
    assert total == "1 proved, 0 refused, 1 wrong"
