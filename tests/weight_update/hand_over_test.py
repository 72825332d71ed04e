"""What was made of a step is handed over with the handles, the owners and the storage it needs."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

from tests.weight_update.rewrite.raw_steps import Copy, dense_step
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.graph.op import Value
from tf_wu_shard.layout import flat_layout
from tf_wu_shard.step.capture import Captured
from tf_wu_shard.step.step import Step
from tf_wu_shard.storage.pending_slots import PendingSlot
from tf_wu_shard.weight_update import function_slots, hand_over
from tf_wu_shard.weight_update.hand_over import handed_over
from tf_wu_shard.weight_update.nested_updates import NestedUpdates
from tf_wu_shard.weight_update.plan.constraints import StorageConstraints
from tf_wu_shard.weight_update.redirection import Redirection
from tf_wu_shard.weight_update.rewrite.border import Redirected
from tf_wu_shard.weight_update.rewrite.result import ShardInput
from tf_wu_shard.weight_update.sharding import Sharding, plan_sharding
from tf_wu_shard.weight_update.stages import Outcome

SHAPES = {"w": (5, 4), "m": (5, 4)}
LAYOUT = flat_layout((5, 4), 2, 4)


class Shard:
    """One shard, with a handle of its own."""

    def __init__(self) -> None:
        self.handle: Any = object()


class Counter:
    """What counts writes."""

    def __init__(self) -> None:
        self.begun, self.ended = Shard(), Shard()


def slot(counter: Any = None) -> PendingSlot:
    """A slot whose shards are there and not yet its storage."""
    shards: Any = (Shard(), Shard())
    return PendingSlot(None, LAYOUT, shards, counter)


def momentum(copy: Copy) -> None:
    put = copy.write("AssignAdd", "m", copy.total, "put")
    copy.write("AssignSub", "w", copy.read("m", "moved", after=[put]), "step")


@pytest.fixture
def sharding(step: Step) -> Sharding:
    """Its update in shards."""
    raw = dense_step(momentum, SHAPES)
    options = ShardingOptions(min_elements=1)
    planned = plan_sharding(raw.analysis, step.dialect, options, StorageConstraints())
    return planned.rewritten(step.view)


@pytest.fixture
def step() -> Step:
    """A branch that a pass before has given an input."""
    raw = dense_step(momentum, SHAPES)
    graph: Any = SimpleNamespace(is_control_flow_graph=True)
    captured = Captured(raw.view, {})
    return Step(graph, captured, raw.emission.dialect, {"earlier": "handle"}, ("owner",))


def made(
    monkeypatch: pytest.MonkeyPatch,
    step: Step,
    outcome: Outcome,
    planned: Mapping[str, PendingSlot] | None = None,
    outside: Redirection | None = None,
) -> Step:
    """What is handed over where these slots are planned, and this is redirected."""
    monkeypatch.setattr(function_slots, "planned_slots", lambda *given: dict(planned or {}))
    monkeypatch.setattr(hand_over, "redirection", lambda *given: outside or Redirection({}, {}))
    return handed_over(step, outcome, None)


def named(found: Step) -> dict[str, Any]:
    assert found.body is not None
    return {node.name: node for node in found.body.nodes}


def test_where_nothing_was_made_the_step_is_the_same(
    monkeypatch: pytest.MonkeyPatch, step: Step
) -> None:
    assert made(monkeypatch, step, Outcome(NestedUpdates(step.captured))) is step


def test_each_input_is_bound_to_the_shard_of_its_replica(
    monkeypatch: pytest.MonkeyPatch, step: Step, sharding: Sharding
) -> None:
    own = slot()
    found = made(monkeypatch, step, Outcome(NestedUpdates(step.captured), sharding), {"m": own})
    result = sharding.result
    assert result is not None and found.is_changed
    inputs = {added.placeholder: added.replica for added in result.shard_inputs}
    wanted = {name: own.handles[replica] for name, replica in inputs.items()}
    assert found.bindings == {"earlier": "handle", **wanted} and len(wanted) == 2
    assert found.owners == ("owner", own.shards) and found.pending == (own,)
    assert {*named(found)} == {node.name for node in result.nodes}
    assert found.body is not None and [*found.body.control_outputs] == [*result.control_outputs]


def test_what_branches_share_is_bound_by_one_handle_and_the_graph_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch, step: Step
) -> None:
    own: Any = SimpleNamespace(
        handles=(), shards=("shards",), packed_handle="packed", write_counts=None
    )
    nested = NestedUpdates(step.captured, (ShardInput("new", "m", 0, "handle"),), {"m": own})
    found = made(monkeypatch, step, Outcome(nested))
    assert found.bindings == {"earlier": "handle", "new": "packed"}
    assert {*named(found)} == {*step.view.ops} and found.is_changed
    # It is storage already.
    assert found.pending == () and found.owners == ("owner", ("shards",))


def test_what_is_redirected_comes_last_with_its_own_handles_and_functions(
    monkeypatch: pytest.MonkeyPatch, step: Step, sharding: Sharding
) -> None:
    planned, own, function = slot(), slot(), object()
    nodes = (tf.compat.v1.NodeDef(name="read", op="Placeholder"),)
    new = Redirected(nodes, (ShardInput("read", "n", 1, "read"),), ("read",), (Value("read"),))
    outside = Redirection({"n": own}, {"f": function}, new, ("kept",))
    outcome = Outcome(NestedUpdates(step.captured), sharding)
    found = made(monkeypatch, step, outcome, {"m": planned}, outside)
    assert found.body is not None
    assert [*named(found)] == ["read"] and [*found.body.outputs] == ["read:0"]
    assert [*found.body.functions] == [function]
    assert found.bindings["read"] is own.handles[1]
    assert found.owners == ("owner", planned.shards, "kept", own.shards)
    assert found.pending == (planned,)


def test_writes_of_shards_that_workers_count_are_counted(
    monkeypatch: pytest.MonkeyPatch, step: Step, sharding: Sharding
) -> None:
    counter = Counter()
    own = slot(counter)
    found = made(monkeypatch, step, Outcome(NestedUpdates(step.captured), sharding), {"m": own})
    counted = {
        name: held
        for name, held in found.bindings.items()
        if held in (counter.begun.handle, counter.ended.handle)
    }
    assert len(counted) == 2
    begin, end = (
        next(n for n in named(found).values() if n.op == "AssignAddVariableOp" and name in n.input)
        for name in sorted(counted)
    )
    writes = [
        node.name
        for node in named(found).values()
        if node.op == "AssignAddVariableOp" and f"^{begin.name}" in node.input and node is not end
    ]
    # Both replicas' shards are written after the one and before the other.
    assert writes == ["put0", "put1"]
    assert {f"^{name}" for name in writes} <= {*end.input}
    assert found.body is not None and end.name in found.body.control_outputs
