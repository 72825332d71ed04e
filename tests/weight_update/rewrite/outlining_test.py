"""What becomes one call: ops of one region and device between which no other op stands."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import tensorflow as tf

from tf_wu_shard import refusals
from tf_wu_shard.errors import WuShardError
from tf_wu_shard.graph.op import Value
from tf_wu_shard.program.compiled_calls import mark
from tf_wu_shard.weight_update.rewrite.compilable import compilable
from tf_wu_shard.weight_update.rewrite.outlining import Outlined, outlined
from tf_wu_shard.weight_update.rewrite.result import Region
from tf_wu_shard.weight_update.rewrite.verify import verify_outlined

_CPU = "/job:localhost/replica:0/task:0/device:CPU:0"


def _graph(body: Any) -> tuple[tf.Graph, Region]:
    """A graph of a body of a gradient and a variable, and the region that it is."""
    with tf.Graph().as_default() as graph, tf.device(_CPU):
        gradient = tf.compat.v1.placeholder(tf.float32, [8], "gradient")
        rate = tf.compat.v1.placeholder(tf.float32, [], "rate")
        handle = tf.compat.v1.placeholder(tf.resource, [], "slot")
        weight = tf.compat.v1.placeholder(tf.resource, [], "weight")
        known = {gradient.op.name, rate.op.name, handle.op.name, weight.op.name}
        body(gradient, rate, handle)
    names = frozenset(op.name for op in graph.get_operations()) - known
    return graph, Region("w", names, frozenset({"slot"}), {_CPU: "weight"}, exact=True)


def _outlined(graph: tf.Graph, region: Region, *outputs: str) -> Outlined:
    writes = [op.name for op in graph.get_operations() if op.type.startswith("Assign")]
    values = [Value(name) for name in outputs]
    nodes = graph.as_graph_def().node
    regions, _ = compilable(nodes, [region])
    return outlined(nodes, values, writes, regions)


def _momentum(gradient: Any, rate: Any, slot: Any) -> None:
    raw = tf.raw_ops
    before = raw.ReadVariableOp(resource=slot, dtype=tf.float32)
    moved = raw.AddV2(x=raw.Mul(x=before, y=rate), y=gradient)
    write = raw.AssignVariableOp(resource=slot, value=moved)
    with tf.control_dependencies([write]):
        raw.Sub(x=gradient, y=raw.Square(x=moved), name="result")


def test_a_body_becomes_one_call_that_writes_its_slot() -> None:
    found = _outlined(*_graph(_momentum), "result")
    types = [node.op for node in found.nodes if node.op != "Placeholder"]
    assert sorted(types) == [
        *("Cast", "LogicalNot", "StatefulPartitionedCall", "VarIsInitializedOp"),
    ]
    call = next(node for node in found.nodes if node.op == "StatefulPartitionedCall")
    assert call.attr["_XlaMustCompile"].b and call.device == _CPU
    assert found.outputs == (Value(call.name),) and found.control_outputs == (call.name,)
    assert [body.name for body in found.bodies] == [call.attr["f"].func.name]
    assert len(found.bodies[0].effects) == 1 and found.bodies[0].takes_zero


def test_a_write_that_is_lost_between_graph_and_function_is_caught() -> None:
    graph, region = _graph(_momentum)
    nodes = graph.as_graph_def().node
    made = _outlined(graph, region, "result")
    verify_outlined(nodes, made)
    (body,) = made.bodies
    lost = dataclasses.replace(made, bodies=(dataclasses.replace(body, effects=()),))
    with pytest.raises(WuShardError, match=r"slot was written 1 times, .* 0 times"):
        verify_outlined(nodes, lost)
    write = tf.compat.v1.NodeDef(name="again", op="AssignVariableOp", input=["slot", "gradient"])
    again = dataclasses.replace(made, nodes=(*made.nodes, write))
    with pytest.raises(WuShardError, match=r"slot was written 1 times, .* 2 times"):
        verify_outlined(nodes, again)


def test_an_op_that_stays_divides_what_is_before_it_from_what_is_behind() -> None:
    def body(gradient: Any, rate: Any, slot: Any) -> None:
        del slot
        raw = tf.raw_ops
        before = raw.Square(x=raw.Abs(x=gradient))
        total = raw.Sum(input=before, axis=tf.constant([0]))
        behind = raw.Mul(x=before, y=raw.Exp(x=total))
        raw.Sub(x=behind, y=rate, name="result")

    found = _outlined(*_graph(body), "result")
    calls = [node for node in found.nodes if node.op == "StatefulPartitionedCall"]
    assert len(calls) == len(found.bodies) == 2
    assert {"Sum", "Exp"} <= {node.op for node in found.nodes}
    assert "Mul" not in {node.op for node in found.nodes}


@pytest.mark.parametrize("what", ["products in a row", "division by a root", "one op alone"])
def test_what_grappler_may_replace_and_what_does_not_pay_stays(what: str) -> None:
    def body(gradient: Any, rate: Any, slot: Any) -> None:
        del slot
        raw = tf.raw_ops
        if what == "products in a row":
            raw.Mul(x=raw.Mul(x=gradient, y=rate), y=rate, name="result")
        elif what == "division by a root":
            root = raw.Sqrt(x=raw.AddV2(x=gradient, y=rate))
            raw.RealDiv(x=raw.Square(x=gradient), y=root, name="result")
        else:
            raw.Sub(x=gradient, y=rate, name="result")

    graph, region = _graph(body)
    found = _outlined(graph, region, "result")
    assert [node.op for node in found.nodes] == [op.type for op in graph.get_operations()]
    assert found.bodies == () and found.outputs == (Value("result"),)
    regions, left_open = compilable(graph.as_graph_def().node, [region])
    kinds = refusals.Compiling
    by_root = what == "division by a root"
    assert regions == ()
    assert left_open["w"].kind is (kinds.DIVIDES_BY_ROOT if by_root else kinds.FEW_OPS)


def test_a_read_that_others_look_at_too_stays_a_read() -> None:
    def body(gradient: Any, rate: Any, slot: Any) -> None:
        raw = tf.raw_ops
        before = raw.ReadVariableOp(resource=slot, dtype=tf.float32, name="before")
        raw.Sub(x=raw.Square(x=before), y=gradient, name="result")
        raw.Exp(x=before, name="other")

    found = _outlined(*_graph(body), "result", "other")
    assert {"ReadVariableOp", "Exp"} <= {node.op for node in found.nodes}
    assert found.outputs[1] == Value("other") and len(found.bodies) == 1


def test_a_value_that_only_gets_another_shape_first_is_not_handed_to_xla() -> None:
    def body(gradient: Any, rate: Any, slot: Any) -> None:
        del slot
        raw = tf.raw_ops
        weight = tf.compat.v1.get_default_graph().get_tensor_by_name("weight:0")
        before = raw.ReadVariableOp(resource=weight, dtype=tf.float32)
        flat = raw.Reshape(tensor=raw.Identity(input=before), shape=tf.constant([8]), name="flat")
        # As a shard is cut of a whole weight.
        own = raw.Slice(input=flat, begin=tf.constant([0]), size=tf.constant([8]))
        moved = raw.Sub(x=own, y=raw.Mul(x=gradient, y=raw.Square(x=rate)))
        raw.Reshape(tensor=moved, shape=tf.constant([2, 4]), name="result")

    found = _outlined(*_graph(body), "result")
    calls = [node for node in found.nodes if node.op == "StatefulPartitionedCall"]
    assert len(calls) == 1 and len(calls[0].attr["Tout"].list.type) == 1
    kept = {node.name for node in found.nodes}
    assert "flat" in kept and not {"Sub", "result"} & kept


def test_what_xla_compiled_as_it_was_traced_is_compiled_with_its_constants_and_alone() -> None:
    def body(gradient: Any, rate: Any, slot: Any) -> None:
        del rate
        power = tf.raw_ops.Pow(x=gradient, y=tf.constant(0.5, name="half"))
        tf.raw_ops.AssignVariableOp(resource=slot, value=power)

    graph, region = _graph(body)
    nodes = graph.as_graph_def().node
    assert compilable(nodes, [region])[0] == ()
    asked = dataclasses.replace(region, exact=False, as_asked_for=True)
    (found,) = _outlined(graph, asked).bodies
    assert [node.op for node in found.nodes].count("Placeholder") == 3
    for node in nodes:
        if node.name == "half":
            mark(node, "call")
    regions, _ = compilable(nodes, [asked])
    writes = [node.name for node in nodes if node.op.startswith("Assign")]
    (found,) = outlined(nodes, [], writes, regions).bodies
    assert "Const" in [node.op for node in found.nodes] and not found.takes_zero
