"""The builder writes nodes with unique names and exactly the attributes it is given."""

from __future__ import annotations

import tensorflow as tf

from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.op import Value


def test_names_are_unique_among_old_and_new_nodes() -> None:
    builder = GraphBuilder(["a", "a_1"])
    made = [builder.op("NoOp", [], name="a", device="").op for _ in range(2)]
    assert made == ["a_2", "a_3"]


def test_an_op_is_written_as_asked() -> None:
    builder = GraphBuilder([])
    value = builder.op(
        "ConcatV2",
        [Value("x"), Value("y", 2)],
        name="joined",
        device="/CPU:1",
        controls=["b", "a", "b"],
        types={"T": 1},
        ints={"N": 2},
        strings={"note": "yes"},
    )
    (node,) = builder.nodes
    assert value == Value("joined", 0)
    assert list(node.input) == ["x", "y:2", "^a", "^b"]
    assert (node.op, node.device) == ("ConcatV2", "/CPU:1")
    assert (node.attr["T"].type, node.attr["N"].i, node.attr["note"].s) == (1, 2, b"yes")


def test_a_likeness_leaves_out_what_describes_the_templates_place() -> None:
    template = tf.compat.v1.NodeDef(name="old", op="Mul", input=["a", "b"], device="/CPU:0")
    template.attr["T"].type = 1
    template.attr["_output_shapes"].list.shape.add()
    template.attr["_class"].list.s.append(b"loc:@old")
    builder = GraphBuilder(["old"])
    builder.like(template, [Value("c")], name="new", device="/CPU:1")
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
