"""A rewritten graph keeps what belongs to the old one, and is read as that was."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tests.program.nodes import nodes
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView, VariableRef
from tf_wu_shard.tensorflow_private import function_graph
from tf_wu_shard.weight_update.rewrite.result import RewriteResult, ShardInput

REF = VariableRef("w", 0, 1, (4,), 1, True, "")


def source() -> tf.compat.v1.GraphDef:
    """A graph with a version and a function of its own."""
    graph_def = tf.compat.v1.GraphDef(node=nodes("h = Placeholder()\nold = Tanh(h)\n"))
    graph_def.versions.producer = 1234
    graph_def.library.function.add().signature.name = "called"
    return graph_def


@pytest.fixture
def result() -> RewriteResult:
    return RewriteResult(
        nodes=tuple(nodes("h = Placeholder()\nnew = Abs(h)\nlast = NoOp(^new)\n")),
        source=source(),
        shard_inputs=(),
        control_outputs=("last",),
        outputs=(Value("new"),),
        emitted={},
        assigns={},
    )


def test_the_new_graph_has_its_own_nodes_and_the_old_ones_versions_and_functions(
    result: RewriteResult,
) -> None:
    graph_def = result.graph_def
    assert [node.name for node in graph_def.node] == ["h", "new", "last"]
    assert graph_def.versions.producer == 1234
    assert [f.signature.name for f in graph_def.library.function] == ["called"]
    assert result.graph_def is graph_def


def test_the_new_view_returns_what_is_new_and_knows_the_old_variables(
    result: RewriteResult,
) -> None:
    before = GraphView(
        source(),
        variables={"h": REF},
        outputs=[Value("old")],
        control_outputs=("old",),
        op_def=function_graph.op_def,
        shape_of=lambda value: (7,) if value.op == "h" else None,
    ).with_part_wise({"old": {"w": frozenset()}})
    view = result.view(before)
    assert [*view.ops] == ["h", "new", "last"]
    assert (view.outputs, view.control_outputs) == ((Value("new"),), ("last",))
    assert view.variables == {"h": REF} and view.shape(Value("h")) == (7,)
    # That was said of ops of the old graph.
    assert view.part_wise == {} and before.part_wise != {}


def test_an_input_stands_for_all_shards_where_the_program_has_a_handle_of_its_own() -> None:
    assert ShardInput("m_input", "m", 0, "m_handle").is_packed
    assert not ShardInput("m_input", "m", 1, "m_input").is_packed
