"""The builder writes nodes with unique names and exactly the attributes it is given."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tf_wu_shard.dtypes import FLOAT32, INT32, INT64, RESOURCE
from tf_wu_shard.errors import WuShardError
from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.op import Value


def test_names_are_unique_among_old_and_new_nodes() -> None:
    builder = GraphBuilder(["a", "a_1"])
    made = [builder.at("", "").op("NoOp", [], "a").op for _ in range(2)]
    assert made == ["a_2", "a_3"]


def test_an_op_is_written_as_asked() -> None:
    builder = GraphBuilder([], lambda value: INT64)
    value = builder.at("/CPU:1", "scope").op(
        "AssignVariableOp",
        [builder.note(Value("handle"), RESOURCE), Value("y", 2)],
        "written",
        controls=["b", "a", "b"],
        validate_shape=True,
    )
    (node,) = builder.nodes
    assert value == Value("scope/written", 0)
    assert list(node.input) == ["handle", "y:2", "^a", "^b"]
    assert (node.op, node.device) == ("AssignVariableOp", "/CPU:1")
    assert (node.attr["dtype"].type, node.attr["validate_shape"].b) == (INT64, True)


def test_attributes_that_operands_determine_are_derived() -> None:
    builder = GraphBuilder([], {Value("x"): FLOAT32, Value("y", 1): FLOAT32}.__getitem__)
    at = builder.at("", "")
    joined = at.concat([Value("x"), Value("y", 1)], "joined")
    attributes = builder.nodes[-1].attr
    assert (attributes["T"].type, attributes["N"].i, attributes["Tidx"].type) == (FLOAT32, 2, INT32)
    assert at.dtype(joined) == FLOAT32
    parts = at.split(at.cast(joined, INT64, "cast"), [1, 2], "parts")
    assert [at.dtype(part) for part in parts] == [INT64, INT64]
    at.op("XlaOptimizationBarrier", [joined, *parts], "barrier")
    assert list(builder.nodes[-1].attr["T"].list.type) == [FLOAT32, INT64, INT64]


def test_lists_of_shapes_and_strings_are_written_as_the_op_declares_them() -> None:
    builder = GraphBuilder([], lambda value: FLOAT32)
    called = builder.at("", "").op(
        "XlaCallModule",
        [Value("x")],
        "called",
        version=9,
        module="text",
        Sout=[(2, 3)],
        Tout=[FLOAT32],
        platforms=["TPU"],
    )
    attributes = builder.nodes[-1].attr
    assert [d.size for d in attributes["Sout"].list.shape[0].dim] == [2, 3]
    assert (attributes["module"].s, list(attributes["platforms"].list.s)) == (b"text", [b"TPU"])
    assert builder.dtype(called) == FLOAT32


def test_a_wrong_op_is_told_at_once() -> None:
    at = GraphBuilder([], lambda value: FLOAT32).at("", "")
    with pytest.raises(WuShardError, match="TensorFlow knows no op NoSuchOp"):
        at.op("NoSuchOp", [], "made")
    with pytest.raises(WuShardError, match="AddV2 does not take 3 operands"):
        at.op("AddV2", [Value("x")] * 3, "made")
    with pytest.raises(WuShardError, match="AddV2 has no attribute 'Tidx'"):
        at.op("AddV2", [Value("x")] * 2, "made", Tidx=INT32)


def test_a_likeness_leaves_out_what_describes_the_templates_place() -> None:
    template = tf.compat.v1.NodeDef(name="old", op="Mul", input=["a", "b"], device="/CPU:0")
    template.attr["T"].type = 1
    template.attr["_output_shapes"].list.shape.add()
    template.attr["_class"].list.s.append(b"loc:@old")
    builder = GraphBuilder(["old"])
    builder.at("/CPU:1", "").like(template, [Value("c")], "new")
    (node,) = builder.nodes
    assert dict(node.attr) == {"T": template.attr["T"]}
    assert (node.op, list(node.input), node.device) == ("Mul", ["c"], "/CPU:1")


def test_equal_constants_on_one_device_are_one_node() -> None:
    builder = GraphBuilder([])
    same = {builder.constant([1, 2], device="/CPU:0") for _ in range(2)}
    other = {
        builder.constant([1, 2], device="/CPU:1"),
        builder.constant([1, 3], device="/CPU:0"),
        builder.constant([1, 2], device="/CPU:0", dtype=tf.int64.as_datatype_enum),
    }
    assert len(same) == 1
    assert len(same | other) == len(builder.nodes) == 4
    values = [tf.make_ndarray(n.attr["value"].tensor).tolist() for n in builder.nodes]
    assert values[0] == [1, 2]
