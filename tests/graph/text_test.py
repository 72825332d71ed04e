"""An op stands in one line that differs where the op does."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tests.graph.tracing import bare_view
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.text import op_text
from tf_wu_shard.graph.view import GraphView, VariableRef
from tf_wu_shard.tensorflow_private import function_graph


def view_of(graph: tf.Graph) -> GraphView:
    return GraphView(
        graph.as_graph_def(add_shapes=True),
        variables={},
        outputs=(),
        control_outputs=(),
        op_def=function_graph.op_def,
    )


def lines_of(graph: tf.Graph) -> dict[str, str]:
    view = view_of(graph)
    return {op.name: op_text(view, op, view.shape, view.variables) for op in view}


def test_an_op_has_its_inputs_what_is_unusual_and_what_it_yields() -> None:
    with tf.Graph().as_default() as graph:
        a = tf.compat.v1.placeholder(tf.float32, (2, None), name="a")
        b = tf.compat.v1.placeholder(tf.bfloat16, (3, 2), name="b")
        with tf.control_dependencies([a]), tf.device("CPU:0"):
            tf.matmul(tf.cast(b, tf.float32, name="c"), a, name="d", transpose_b=False)
        tf.split(tf.zeros((4, 2), name="e"), 2, name="f")
    lines = lines_of(graph)
    assert lines["a"] == "a = Placeholder() {shape=[2,-1]}  # ? float32"
    assert lines["d"] == "d = MatMul(c, a)  # ? float32 @/device:CPU:0"
    assert lines["c"] == "c = Cast(b, ^a)  # [3,2] float32 @/device:CPU:0"
    assert lines["f"] == "f = Split(f/split_dim, e) {num_split=2}  # [2,2] float32 [2,2] float32"


def test_a_long_value_has_its_digest() -> None:
    with tf.Graph().as_default() as graph:
        tf.constant([1, 2], name="short")
        tf.constant(list(range(99)), name="long")
        tf.constant([*range(98), 0], name="other")
        tf.constant("\x1b", name="text")
    lines = lines_of(graph)
    assert lines["short"] == "short = Const() {value=[1, 2]}  # [2] int32"
    digests = {lines[name].partition("{")[2].partition("}")[0] for name in ("long", "other")}
    assert len(digests) == 2 and all(d.startswith("value=<") for d in digests)
    assert "\x1b" not in lines["text"]


def test_a_handle_is_told_by_its_variable() -> None:
    with tf.Graph().as_default() as graph:
        tf.compat.v1.placeholder(tf.resource, (), name="h")
    view = view_of(graph)
    ref = VariableRef("dense/kernel", 0, 1, (2, 3), 1, True, "")
    line = op_text(view, view.ops["h"], view.shape, {"h": ref})
    assert line == "h = Placeholder() {shape=[]}  # handle of dense/kernel"


def test_what_contradicts_itself_is_shown_all_the_same() -> None:
    graph_def = tf.compat.v1.GraphDef()
    unknown = graph_def.node.add(name="n", op="NoSuchOp")
    unknown.attr["list"].list.s.extend([b"\xff"])
    unknown.attr["f"].func.name = "callee"
    torn: Any = graph_def.node.add(name="t", op="Const")
    torn.attr["value"].tensor.dtype = 1
    torn.attr["value"].tensor.tensor_shape.dim.add(size=4)
    torn.attr["value"].tensor.tensor_content = b"abc"
    torn.attr["dtype"].type = 99
    view = bare_view(graph_def)
    first, second = (op_text(view, op, lambda _: None, {}) for op in view)
    assert first.startswith("n = NoSuchOp() {f=callee list=1 of s <") and first.endswith("  # ?")
    assert second.startswith("t = Const() {value=<") and second.endswith("# ? type 99")
    assert view.shape(Value("t")) == (4,)
