"""What emits for one rewrite shares where it does so and what replicas of its kind can exchange."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.op import Value
from tf_wu_shard.weight_update.rewrite.emission import Emission

NONE: Any = None


def emission(**exchanges: object) -> Emission:
    """Of replicas that have these exchanges and no others."""
    dialect: Any = SimpleNamespace(**({"uneven": None, "entries": None} | exchanges))
    return Emission(NONE, GraphBuilder([]), dialect, NONE)


def test_ops_stand_on_their_device_in_the_scope_of_what_is_done_to_the_variable() -> None:
    emitting = emission()
    made = emitting.at("/device:CPU:1", "layer/kernel:0", "assign").op("NoOp", [], "last")
    (node,) = emitting.builder.nodes
    assert node.name == made.op == "wu_shard/layer/kernel_0/assign/last"
    assert node.device == "/device:CPU:1"


def test_exchanges_are_those_of_the_dialect() -> None:
    uneven, entries = object(), object()
    emitting = emission(uneven=uneven, entries=entries)
    assert emitting.uneven is uneven and emitting.entries is entries


def test_an_exchange_that_the_replicas_lack_is_a_mistake_of_who_asks() -> None:
    with pytest.raises(AssertionError, match="such updates for such replicas only"):
        _ = emission(entries=object()).uneven
    with pytest.raises(AssertionError, match="sparse gradients are recognised"):
        _ = emission(uneven=object()).entries


def test_handles_of_shards_are_shared_within_one_rewrite_alone() -> None:
    one, other = emission(), emission()
    one.handles["m"] = [one.builder.note(Value("m_shard"), tf.resource.as_datatype_enum)]
    assert one.handles["m"] == [Value("m_shard")] and other.handles == {}
