"""Calls that would not end are refused before anything follows them."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_wu_shard.inspection.reading.calls import Calls, called_by


def library(**functions: list[tuple[str, str]]) -> dict[str, Any]:
    """FunctionDefs by name, of ops: a type, and the function that the op calls, or ""."""
    found = {}
    for name, ops in functions.items():
        found[name] = tf.compat.v1.GraphDef().library.function.add()
        found[name].signature.name = name
        for number, (op, callee) in enumerate(ops):
            node = found[name].node_def.add(name=f"n{number}", op=op)
            if callee:
                node.attr["f"].func.name = callee
    return found


def call(name: str) -> tuple[str, str]:
    return "StatefulPartitionedCall", name


WRITE = ("AssignVariableOp", "")
PLAIN = ("Square", "")


def test_what_a_called_function_does_its_caller_does() -> None:
    calls = Calls(library(outer=[PLAIN, call("inner"), call("inner")], inner=[WRITE, PLAIN]))
    reach = calls.reach("outer")
    assert (reach.ops, reach.levels, reach.writes, reach.refusal) == (7, 2, True, "")
    assert not calls.writes_itself("outer") and calls.writes_itself("inner")
    assert calls.called == {"inner"} and calls.callees["outer"] == ("inner", "inner")


def test_an_op_named_like_a_function_calls_it() -> None:
    calls = Calls(library(outer=[("inner", "")], inner=[WRITE]))
    assert calls.called == {"inner"} and calls.reach("outer").writes


def test_functions_that_call_each_other_in_a_circle_are_refused() -> None:
    calls = Calls(library(a=[call("b")], b=[call("a")], other=[PLAIN]))
    assert "calls itself" in calls.reach("a").refusal
    assert "calls itself" in calls.reach("b").refusal
    assert calls.reach("other").refusal == ""


def test_a_chain_of_calls_that_is_too_deep_is_refused_and_a_shorter_one_is_not() -> None:
    chain = {f"f{number}": [call(f"f{number + 1}")] for number in range(60)}
    calls = Calls(library(**chain, f60=[WRITE]))
    assert "more than 40 levels deep" in calls.reach("f0").refusal
    assert calls.reach("f30").refusal == "" and calls.reach("f30").levels == 31


def test_calls_that_double_at_each_level_are_refused_without_counting_them() -> None:
    doubling = {f"f{n}": [call(f"f{n + 1}")] * 2 for n in range(30)}
    calls = Calls(library(**doubling, f30=[WRITE]))
    reach = calls.reach("f0")
    assert "with all calls written out" in reach.refusal and reach.ops < 20_000


def test_only_ops_that_may_name_functions_call_any() -> None:
    graph_def = tf.compat.v1.GraphDef()
    for op in ("Square", "PartitionedCall", "NoSuchOp"):
        graph_def.node.add(name=op, op=op).attr["f"].func.name = "callee"
    assert [called_by(node) for node in graph_def.node] == [[], ["callee"], ["callee"]]
