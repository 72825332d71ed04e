"""Around a branch that writes shards, a body reads them by the argument that was the variable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tests.program.nodes import nodes
from tf_wu_shard.graph.builder import Emitter
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView, VariableRef
from tf_wu_shard.layout import tile_layout
from tf_wu_shard.replicas import of_one_program
from tf_wu_shard.tensorflow_private import function_graph
from tf_wu_shard.weight_update.nested_reads import redirect_reads
from tf_wu_shard.weight_update.rewrite.border import Redirected

LAYOUT = tile_layout((64, 256), (4,), (0, 1, 2, 3))

# A body that reads the weight before and after a branch that writes it.
BODY = """
w = Placeholder() {dtype=20}
m = Placeholder() {dtype=20}
p = Placeholder() {dtype=10}
early = ReadVariableOp(w) {dtype=1}
shown = Tanh(early)
c = If(p, w, m) {then_branch=&a else_branch=&b} ^early
late = ReadVariableOp(w) {dtype=1} ^c
"""


class OneProgram:
    """How replicas of one program put tensors together: by an op of its own."""

    replicas = of_one_program(4)

    def shard_handle(self, at: Emitter) -> tuple[Value, Value]:
        handle = at.handle_input("")
        return handle, handle

    def all_gather(self, at: Emitter, shards: Any, layouts: Sequence[Any]) -> list[list[Value]]:
        assert [*layouts] == [LAYOUT] * len(shards)
        return [[at.op("Identity", [own], "whole")] for (own,) in shards]


def body() -> GraphView:
    refs = {
        key: VariableRef(key.upper(), 0, 1, (64, 256), 1, True, "", trainable=key == "w")
        for key in ("w", "m")
    }
    return GraphView(
        tf.compat.v1.GraphDef(node=nodes(BODY)),
        variables=refs,
        outputs=[Value("shown"), Value("late"), Value("p")],
        control_outputs=("c", "late"),
        op_def=function_graph.op_def,
        shape_of=lambda value: None,
    )


def redirected(*keys: str) -> Redirected | None:
    """The body, where these variables are in shards."""
    dialect: Any = OneProgram()
    return redirect_reads(body(), dict.fromkeys(keys, LAYOUT), ["c"], dialect)


def new(*keys: str) -> tuple[Redirected, dict[str, Any]]:
    found = redirected(*keys)
    assert found is not None
    named = {node.name: node for node in found.nodes}
    assert len(named) == len(found.nodes)
    return found, named


def reads(named: dict[str, Any]) -> list[Any]:
    return [node for node in named.values() if node.op == "ReadVariableOp"]


def test_reads_become_gathers_of_what_the_argument_now_holds() -> None:
    found, named = new("W")
    assert not {"early", "late"} & named.keys()
    first, second = reads(named)
    assert [node.input[0] for node in (first, second)] == ["w", "w"]
    shown = named[named["shown"].input[0]]
    assert shown.op == "Identity" and [*shown.input] == [first.name]
    assert found.outputs[0] == Value("shown") and found.outputs[2] == Value("p")
    assert [*named[found.outputs[1].op].input] == [second.name]


def test_the_branch_takes_the_same_argument_and_nothing_is_added_to_the_signature() -> None:
    found, named = new("W")
    assert [*named["c"].input][:3] == ["p", "w", "m"]
    placeholders = {node.name for node in named.values() if node.op == "Placeholder"}
    assert placeholders == {"w", "m", "p"} and found.shard_inputs == ()


def test_reads_come_before_or_after_the_write_inside_as_before() -> None:
    found, named = new("W")
    first, second = reads(named)
    assert not any(text.startswith("^") for text in first.input)
    assert "^c" in second.input
    # The branch waits for what took the place of the first read.
    waits = {text[1:] for text in named["c"].input if text.startswith("^")}
    assert waits & {first.name, named["shown"].input[0]}
    assert "c" in found.control_outputs and "late" not in found.control_outputs


def test_where_nothing_is_read_nothing_is_redirected() -> None:
    assert redirected("M") is None and redirected() is None
