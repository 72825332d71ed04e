"""Claims about tpu_compiler/scopes.py: where backward ends and the update begins."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_wu_shard.tpu_compiler.scopes import Scope, scope_at, scopes_of


def graph_of(text: str) -> Any:
    """A graph from lines of `name = op input ...`."""
    graph_def: Any = tf.compat.v1.GraphDef()
    for line in text.strip().splitlines():
        name, _, rest = line.strip().partition(" = ")
        op, *inputs = rest.split()
        graph_def.node.append(tf.compat.v1.NodeDef(name=name, op=op, input=inputs))
    return graph_def


STEP = """
x = Placeholder
w = Placeholder
step = Placeholder
y = MatMul x w
dy = Sub y x
dw = MatMul x dy
moved = Transpose dw
groups = Const
sum = XlaAllReduce moved groups
decay = Pow step
scaled = Mul sum decay
write = AssignSubVariableOp w scaled
loss = Mean dy
"""


def test_an_update_begins_behind_the_last_sum_over_the_replicas() -> None:
    scopes = scopes_of(graph_of(STEP))
    assert {name for name, scope in scopes.items() if scope is Scope.GRADIENTS} == {
        *("x", "w", "y", "dy", "dw")
    }
    assert scopes["scaled"] is scopes["write"] is Scope.UPDATE


def test_what_only_the_update_needs_is_the_updates() -> None:
    scopes = scopes_of(graph_of(STEP))
    assert scopes["decay"] is Scope.UPDATE and scopes["step"] is Scope.UPDATE


def test_what_moves_values_next_to_a_collective_is_glue() -> None:
    scopes = scopes_of(graph_of(STEP))
    assert scopes["moved"] is Scope.GLUE


def test_what_serves_neither_is_left_out() -> None:
    assert "loss" not in scopes_of(graph_of(STEP))


def test_a_sum_that_a_matrix_product_follows_is_no_gradients() -> None:
    scopes = scopes_of(
        graph_of("""
        x = Placeholder
        groups = Const
        mean = XlaAllReduce x groups
        normed = Sub x mean
        y = MatMul normed normed
        sum = XlaAllReduce y groups
        new = Neg sum
        """)
    )
    assert scopes["normed"] is scopes["y"] is Scope.GRADIENTS
    assert scopes["new"] is Scope.UPDATE


def test_products_of_an_update_itself_belong_to_it() -> None:
    text = STEP.replace("scaled = Mul sum", "square = MatMul sum sum\nscaled = Mul square")
    scopes = scopes_of(graph_of(text))
    assert scopes["dw"] is Scope.GRADIENTS
    assert scopes["square"] is scopes["scaled"] is Scope.UPDATE


def test_a_chain_of_reduce_scatters_ends_the_backward_pass() -> None:
    scopes = scopes_of(
        graph_of("""
        x = Placeholder
        y = MatMul x x
        groups = Const
        rows = XlaReduceScatter y groups
        own = XlaReduceScatter rows groups
        new = Neg own
        """)
    )
    assert scopes["y"] is Scope.GRADIENTS
    assert scopes["rows"] is scopes["own"] is Scope.GLUE
    assert scopes["new"] is Scope.UPDATE


def test_a_function_with_a_sum_in_it_is_an_update_as_a_whole() -> None:
    graph_def = graph_of("""
        x = Placeholder
        y = MatMul x x
        apply = If y
        """)
    graph_def.node[2].attr["then_branch"].func.name = "then"
    function = graph_def.library.function.add()
    function.signature.name = "then"
    function.node_def.append(tf.compat.v1.NodeDef(name="sum", op="XlaAllReduce"))
    assert scopes_of(graph_def)["apply"] is Scope.UPDATE


def test_a_name_inside_a_called_function_belongs_where_the_call_does() -> None:
    scopes = {"while/apply": Scope.UPDATE}
    assert scope_at("while/apply/body/mul", scopes) is Scope.UPDATE
    assert scope_at("while/other", scopes) is Scope.OTHER
    assert scope_at("", scopes) is Scope.OTHER
