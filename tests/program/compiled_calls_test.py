"""What is written out of a compiled function says so, and only if all of it may be."""

from __future__ import annotations

import tensorflow as tf

from tf_wu_shard.program.compiled_calls import (
    MUST_COMPILE,
    compiled_in,
    is_compiled,
    mark,
    mark_as_its_caller,
    not_compiled_again,
    unmark,
)


def _node(op: str, name: str = "n") -> tf.compat.v1.NodeDef:
    return tf.compat.v1.NodeDef(name=name, op=op)


def test_a_call_is_compiled_where_tensorflow_says_that_it_must_be() -> None:
    with tf.Graph().as_default() as graph:
        tf.function(lambda x: x * 2.0, jit_compile=True)(tf.constant(1.0))
        tf.function(lambda x: x * 3.0)(tf.constant(1.0))
    calls = [op.node_def for op in graph.get_operations() if "PartitionedCall" in op.type]
    assert [is_compiled(call) for call in calls] == [True, False]


def test_a_node_remembers_the_call_that_it_was_in() -> None:
    node = _node("Mul")
    assert compiled_in(node) == "" and not node.attr
    mark(node, "outer/call")
    assert compiled_in(node) == "outer/call"


def test_the_outermost_compiled_call_is_remembered_by_its_place_in_the_step() -> None:
    node, compiled = _node("Mul"), _node("PartitionedCall", "update")
    compiled.attr[MUST_COMPILE].b = True
    mark_as_its_caller(node, _node("PartitionedCall", "plain"))
    assert compiled_in(node) == ""
    for call, expected in (
        (_node("PartitionedCall", "inner"), ""),
        (compiled, "update"),
        (_node("PartitionedCall", "branch_1"), "branch_1/update"),
        (compiled, "update"),
    ):
        mark_as_its_caller(node, call)
        assert compiled_in(node) == expected
    unmark(node)
    assert compiled_in(node) == "" and not node.attr


def test_one_op_that_is_no_arithmetic_keeps_all_of_a_function_in_it() -> None:
    known = [_node(op) for op in ("Placeholder", "ReadVariableOp", "Mul", "AssignSubVariableOp")]
    assert not_compiled_again(known) is None
    assert not_compiled_again([*known, _node("Sum"), _node("If")]) == "Sum"
    assert not_compiled_again([*known, _node("ResourceApplyAdam")]) == "ResourceApplyAdam"
