"""Each op stands after all that it waits for; a graph with a cycle has no order."""

from __future__ import annotations

import random
import types
from typing import Any

import pytest

from tf_wu_shard.errors import WuShardError
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.ordering import ordered_ops


def nodes_of(needs: dict[str, list[str]]) -> list[Any]:
    """NodeDefs that take, and wait for, what is named."""
    return [
        types.SimpleNamespace(name=name, op="Op", input=inputs, device="")
        for name, inputs in needs.items()
    ]


def test_data_and_control_edges_are_told_apart() -> None:
    *_, last = ordered_ops(nodes_of({"c": ["b:1", "^a"], "b": ["a"], "a": []}))
    assert (last.name, last.inputs, last.controls) == ("c", (Value("b", 1),), ("a",))
    assert last.position == 2


def test_random_graphs_agree_with_reachability() -> None:
    rng = random.Random(7)
    outcomes = []
    for _ in range(300):
        names = [str(i) for i in range(rng.randint(1, 12))]
        needs = {n: rng.choices(names, k=rng.randint(0, 1)) for n in names}
        behind = {n: set(needs[n]) for n in names}
        for middle in names:
            for name in names:
                if middle in behind[name]:
                    behind[name] |= behind[middle]
        has_cycle = any(n in behind[n] for n in names)
        outcomes.append(has_cycle)
        nodes = nodes_of({n: [rng.choice(["", "^"]) + one for one in needs[n]] for n in names})
        if has_cycle:
            with pytest.raises(WuShardError, match="cycle"):
                ordered_ops(nodes)
            continue
        place = {op.name: op.position for op in ordered_ops(nodes)}
        assert place.keys() == set(names)
        assert all(place[one] < place[name] for name in names for one in needs[name])
    assert 50 < sum(outcomes) < 250
