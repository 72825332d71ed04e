"""Every rule is proved: whole and in shards, an op gives the same, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.rules.proof import Call, arity, disagreement, sample_call
from tf_wu_shard.rules import registry
from tf_wu_shard.rules.registry import Family, op_types

SHAPES = [(), (1,), (3,), (31,), (5, 7), (4, 33)]


def calls(op_type: str) -> Iterator[tuple[Call, int]]:
    """Calls of an op over shapes and replica counts, with scalars among the operands."""
    random = np.random.default_rng(7)
    count = arity(op_type)
    for shape in SHAPES:
        for replicas in (2, 3, 8):
            yield sample_call(op_type, random, shape, [True] * count), replicas
        # What is clipped is never smaller than its bounds.
        first = 1 if op_type == "ClipByValue" else 0
        for scalar in range(first, count if count > 1 and shape else 0):
            cut = [number != scalar for number in range(count)]
            yield sample_call(op_type, random, shape, cut), 3


@pytest.mark.parametrize("op_type", op_types())
def test_shards_agree_with_the_whole(op_type: str) -> None:
    for call, replicas in calls(op_type):
        assert disagreement(call, replicas) is None


@pytest.fixture
def falsely_elementwise(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = dict(registry._RULES)
    monkeypatch.setattr(registry, "_RULES", rules)
    false = ("Cumsum", "ReverseV2", "Softmax")
    registry.register(Family.ELEMENTWISE, registry.same_lanes, *false)
    registry.register(Family.RELABEL, registry.relabelled, "Transpose")


@pytest.mark.usefixtures("falsely_elementwise")
@pytest.mark.parametrize(
    ("op_type", "other"),
    [
        ("Cumsum", np.array(0, np.int32)),
        ("ReverseV2", np.array([0], np.int32)),
        ("Softmax", None),
        ("Transpose", np.array([1, 0], np.int32)),
    ],
)
def test_a_false_rule_is_caught(op_type: str, other: np.ndarray | None) -> None:
    random = np.random.default_rng(3)
    shape = (31, 3) if op_type == "Transpose" else (93,)
    values = random.normal(size=shape).astype(np.float32)
    operands = (values,) if other is None else (values, other)
    found = disagreement(Call(op_type, operands), 3)
    assert found is not None and found.startswith(op_type)
