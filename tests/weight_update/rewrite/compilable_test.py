"""What XLA can compile of a region, and what of it is worth a call of its own."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from tf_wu_shard import refusals
from tf_wu_shard.weight_update.rewrite.compilable import compilable
from tf_wu_shard.weight_update.rewrite.result import Region

_CPU = "/device:CPU:0"


def _node(name: str, op: str, *inputs: str) -> Any:
    node = tf.compat.v1.NodeDef(name=name, op=op, input=inputs, device=_CPU)
    node.attr["T"].type = tf.float32.as_datatype_enum
    return node


NODES = [
    _node("x", "Placeholder"),
    _node("same", "Identity", "x"),
    _node("square", "Square", "same"),
    _node("also", "Identity", "square"),
    _node("power", "Pow", "also", "also"),
    _node("sum", "Sub", "power", "also"),
]


@pytest.mark.parametrize(
    ("exact", "as_asked_for", "chosen"),
    [
        (True, False, {"square", "also", "sum"}),
        (False, False, {"square", "also", "power", "sum"}),
        (False, True, {"square", "also", "power", "sum"}),
    ],
)
def test_what_is_only_named_anew_at_the_beginning_stays_and_powers_where_bits_count(
    exact: bool, as_asked_for: bool, chosen: set[str]
) -> None:
    ops = frozenset(node.name for node in NODES[1:])
    region = Region("w", ops, frozenset(), {_CPU: "x"}, exact=exact, as_asked_for=as_asked_for)
    (found,), left_open = compilable(NODES, [region])
    assert found.ops == chosen and left_open == {}


def test_one_op_alone_is_compiled_where_it_was_before() -> None:
    fast = Region("w", frozenset({"power"}), frozenset(), {_CPU: "x"}, exact=False)
    found, left_open = compilable(NODES, [fast])
    assert found == () and left_open["w"].kind is refusals.Compiling.FEW_OPS
    asked = Region("w", fast.ops, frozenset(), {_CPU: "x"}, exact=False, as_asked_for=True)
    assert compilable(NODES, [asked]) == ((asked,), {})
