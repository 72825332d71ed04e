"""Nodes that TensorFlow would refuse are told by their name; the others come out whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tf_wu_shard.errors import ModelFileError
from tf_wu_shard.inspection.reading.checked_nodes import function_body, graph_body, is_type
from tf_wu_shard.tensorflow_private.function_graph import op_def


def graph() -> Any:
    """y = concat(x, x), with all that TensorFlow writes."""
    with tf.Graph().as_default() as made:
        x = tf.raw_ops.Placeholder(dtype=tf.float32, shape=(4,), name="x")
        tf.raw_ops.Pack(values=[x, x], axis=0, name="y")
    return made.as_graph_def()


def node(graph_def: Any, name: str) -> Any:
    return next(node for node in graph_def.node if node.name == name)


def test_attributes_that_were_left_out_have_their_defaults_in_a_copy() -> None:
    given = graph()
    del node(given, "y").attr["axis"]
    found = {n.name: n for n in graph_body(given.node, op_def)}
    assert found["y"].attr["axis"].i == 0 and "axis" in found["y"].attr
    assert "axis" not in node(given, "y").attr


def test_a_large_constant_keeps_its_shape_and_not_its_bytes() -> None:
    with tf.Graph().as_default() as made:
        tf.constant([[1.5] * 300] * 300, name="large")
        tf.constant([[2]], name="small")
    large, small = graph_body(made.as_graph_def().node, op_def)
    assert large.ByteSize() < 200 and small.attr["value"].tensor.int_val
    tensor = large.attr["value"].tensor
    assert [d.size for d in tensor.tensor_shape.dim] == [300, 300] and tensor.dtype == 1


def renamed(graph_def: Any) -> None:
    node(graph_def, "x").name = ""


def one_operand_less(graph_def: Any) -> None:
    del node(graph_def, "y").input[1]


def of_no_type(graph_def: Any) -> None:
    node(graph_def, "y").attr["T"].type = 7777


def without_type(graph_def: Any) -> None:
    del node(graph_def, "y").attr["T"]


def negative(graph_def: Any) -> None:
    node(graph_def, "y").attr["N"].i = -1


def reads_nowhere(graph_def: Any) -> None:
    node(graph_def, "y").input[0] = "z"


def reads_behind(graph_def: Any) -> None:
    node(graph_def, "y").input[0] = "x:1"


def reads_no_number(graph_def: Any) -> None:
    node(graph_def, "y").input[0] = "x:\u0661"  # one, in Arabic digits


def reads_nothing(graph_def: Any) -> None:
    node(graph_def, "y").input[0] = ""


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (renamed, "an op has no name or no type"),
        (one_operand_less, "'y' makes no sense: it has 1 operands, not 2"),
        (of_no_type, "its 'T' is 7777, which is no element type"),
        (without_type, "it has no attribute 'T'"),
        (negative, "its 'N' is -1"),
        (reads_nowhere, "it reads 'z', which is not there"),
        (reads_behind, "it reads 'x:1', which is not there"),
        (reads_no_number, "it reads 'x:"),
        (reads_nothing, "it reads nothing"),
    ],
)
def test_what_makes_no_sense_is_told(damage: Callable[[Any], None], words: str) -> None:
    given = graph()
    graph_body(given.node, op_def)
    damage(given)
    with pytest.raises(ModelFileError) as raised:
        graph_body(given.node, op_def)
    assert words in str(raised.value)


def split_function() -> Any:
    """A function that returns the second half of its argument."""

    @tf.function(input_signature=[tf.TensorSpec((4,))])
    def half(x: Any) -> Any:
        return tf.split(x, 2)[1]

    return half.get_concrete_function().function_def


def test_a_functions_results_are_counted_through_as_in_graphs() -> None:
    body = function_body(split_function(), op_def)
    (argument,) = body.arguments
    assert body.nodes[0].op == "Placeholder" and body.nodes[0].name == argument
    (split,) = (n for n in body.nodes if n.op == "Split")
    identities = [n for n in body.nodes if n.op == "Identity"]
    assert [list(n.input) for n in identities] == [[f"{split.name}:1"]]


def test_a_function_that_returns_what_it_does_not_have_is_told() -> None:
    for text in ("nowhere", "nowhere:output:0", "", "split:output:2"):
        definition = split_function()
        (name,) = definition.ret
        definition.ret[name] = text
        with pytest.raises(ModelFileError, match="makes no sense"):
            function_body(definition, op_def)
    definition = split_function()
    definition.control_ret["run"] = "nowhere"
    with pytest.raises(ModelFileError, match="it must run an op that it does not have"):
        function_body(definition, op_def)


def test_types_are_those_that_tensorflow_has() -> None:
    assert is_type(1) and is_type(20)
    assert not is_type(0) and not is_type(7777) and not is_type(-1)
