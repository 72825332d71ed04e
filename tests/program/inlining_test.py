"""A called function's ops stand in place of the call, and effects keep their order."""

from __future__ import annotations

from typing import Any

from tests.program.nodes import nodes, written
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.program.inlining import Body, Inlined, inline

# f(a, h): counts in h, then returns (a * a, a).
COUNTING = Body(
    nodes(
        """
        a = Placeholder()
        h = Placeholder()
        square = Mul(a, a)
        add = AssignAddVariableOp(h, square)
        result = Identity(square) ^add
        """
    ),
    ("a", "h"),
    (Value("result"), Value("a")),
    ("add",),
)

CALLER = """
x = Placeholder()
n = Placeholder()
before = NoOp()
call = StatefulPartitionedCall(x, n) {f=&f} ^before
use = AddV2(call, call:1)
after = NoOp() ^call
"""


def inlined(caller: str, **calls: Body) -> Inlined:
    return inline(nodes(caller), calls, lambda node: None)


def view(found: Inlined) -> GraphView:
    graph: Any = type("Graph", (), {})()
    graph.node, graph.library = found.nodes, type("Library", (), {"function": ()})()
    return GraphView(graph, variables={}, outputs=(), control_outputs=(), op_def=lambda _: None)


def test_operands_stand_for_arguments_and_results_for_what_the_call_returned() -> None:
    found = inlined(CALLER, call=COUNTING)
    assert written(found.nodes) == sorted(
        [
            "x = Placeholder()",
            "n = Placeholder()",
            "before = NoOp()",
            "call/start = NoOp(^before)",
            "call/square = Mul(x, x, ^call/start)",
            "call/add = AssignAddVariableOp(n, call/square)",
            "call/result = Identity(call/square, ^call/add)",
            "call/done = NoOp(^call/start, ^call/add, ^call/result, ^x)",
            "use = AddV2(call/result, x)",
            "after = NoOp(^call/done)",
        ]
    )
    assert found.value(Value("call", 1)) == Value("x")
    assert found.ends == {"call": "call/done"}
    assert found.origins["call/add"] == ("call", "add")


def test_what_waited_for_a_call_waits_for_its_effects_and_they_for_what_it_waited_for() -> None:
    graph = view(inlined(CALLER, call=COUNTING))
    add = graph.ops["call/add"]
    assert graph.first_unordered([graph.ops["before"]], add) is None
    assert graph.first_unordered([add], graph.ops["after"]) is None


def test_effects_of_two_calls_in_a_row_keep_their_order() -> None:
    found = inlined(
        """
        x = Placeholder()
        n = Placeholder()
        one = StatefulPartitionedCall(x, n) {f=&f}
        two = StatefulPartitionedCall(x, n) {f=&f} ^one
        read = ReadVariableOp(n) ^two
        """,
        one=COUNTING,
        two=COUNTING,
    )
    graph = view(found)
    assert graph.first_unordered([graph.ops["one/add"]], graph.ops["two/add"]) is None
    assert graph.first_unordered([graph.ops["two/add"]], graph.ops["read"]) is None
    assert graph.first_unordered([graph.ops["two/add"]], graph.ops["one/add"]) is not None


def test_a_call_may_take_what_another_returns() -> None:
    caller = """
    x = Placeholder()
    n = Placeholder()
    one = StatefulPartitionedCall(x, n) {f=&f}
    two = StatefulPartitionedCall(one:1, n) {f=&f} ^one
    use = Neg(two:1)
    """
    found = inlined(caller, one=COUNTING, two=COUNTING)
    named = {node.name: node for node in found.nodes}
    assert list(named["use"].input) == ["x"]
    assert list(named["two/square"].input) == ["x", "x", "^two/start"]
    assert found.value(Value("two", 1)) == Value("x")


def test_names_that_are_taken_are_not_given_again() -> None:
    caller = CALLER + "call/square = NoOp()\n"
    names = [node.name for node in inlined(caller, call=COUNTING).nodes]
    assert len(names) == len(set(names))
    assert {"call/square", "call/square_1"} <= set(names)


def test_wishes_to_be_placed_with_ops_of_a_function_name_their_copies() -> None:
    body = COUNTING._replace(nodes=nodes("\n".join(written(COUNTING.nodes))))
    result = next(node for node in body.nodes if node.name == "result")
    result.attr["_class"].list.s.extend([b"loc:@square", b"loc:@h", b"loc:@outside"])
    found = {node.name: node for node in inlined(CALLER, call=body).nodes}
    assert list(found["call/result"].attr["_class"].list.s) == [b"loc:@call/square"]


def test_the_given_nodes_stay_as_they_are() -> None:
    caller = nodes(CALLER)
    before = written(caller), written(COUNTING.nodes)
    inline(caller, {"call": COUNTING}, lambda node: None)
    assert (written(caller), written(COUNTING.nodes)) == before


def test_each_new_node_is_adopted_and_no_other() -> None:
    adopted: list[str] = []
    inline(nodes(CALLER), {"call": COUNTING}, lambda node: adopted.append(node.name))
    assert set(adopted) == {f"call/{n}" for n in ("start", "square", "add", "result", "done")}


def test_a_call_in_a_function_waits_for_what_its_caller_waited_for() -> None:
    """It is written out in turn, and what it computes with does not order its reads."""
    outer = Body(
        nodes(
            """
            a = Placeholder()
            h = Placeholder() {dtype=20}
            double = AddV2(a, a)
            inner = StatefulPartitionedCall(double, h) {f=&inner}
            """
        ),
        ("a", "h"),
        (Value("inner"),),
        (),
    )
    caller = nodes("write = NoOp()\ncall = StatefulPartitionedCall(x, w) {f=&outer} ^write")
    found = {n.name: n for n in inline(caller, {"call": outer}, lambda node: None).nodes}
    assert list(found["call/start"].input) == ["^write"]
    assert list(found["call/inner"].input) == ["call/double", "w", "^call/start"]
    assert list(found["call/double"].input) == ["x", "x", "^call/start"]
