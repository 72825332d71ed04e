"""A function of a file is read with its calls written out and one handle for each variable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tf_wu_shard.errors import ModelFileError
from tf_wu_shard.inspection.reading.function_view import view_of_function, view_of_graph
from tf_wu_shard.model_files.types import BoundFunction, Model, ModelVariable

HANDLE = tf.TensorSpec([], tf.resource)
ADD = tf.raw_ops.AssignAddVariableOp


def model_of(function: Callable[..., Any], bound: tuple[str, ...], **variables: Any) -> Any:
    """A model with one function, its last arguments being bound to variables by key."""
    spec = [tf.TensorSpec((4,)), *[HANDLE] * len(bound)]
    traced = tf.function(function, input_signature=spec).get_concrete_function()
    graph_def = traced.graph.as_graph_def()
    functions = {f.signature.name: f for f in graph_def.library.function}
    definition = traced.function_def
    functions[definition.signature.name] = definition
    known = {
        key: ModelVariable(key, shape, 1, trained) for key, (shape, trained) in variables.items()
    }
    offered = BoundFunction(definition.signature.name, bound)
    model = Model("SavedModel", graph_def, functions, (offered,), known, {}, (), (), ())
    return model, offered


def once(x: Any, w: Any) -> None:
    ADD(resource=w, value=x)


def twice(x: Any, one: Any, other: Any) -> None:
    ADD(resource=one, value=x)
    ADD(resource=other, value=x)


def by_call(x: Any, w: Any) -> None:
    tf.function(once, input_signature=[tf.TensorSpec((4,)), HANDLE])(x * 2.0, w)


def test_a_variable_is_known_by_its_key_with_what_the_file_says() -> None:
    found = view_of_function(*model_of(once, ("w",), w=((4,), True)))
    (ref,) = found.view.variables.values()
    assert (ref.key, ref.shape, ref.trainable) == ("w", (4,), True)
    assert not found.guessed and found.reordered == ()


def test_a_call_that_takes_a_handle_is_written_out() -> None:
    view = view_of_function(*model_of(by_call, ("w",), w=((4,), True))).view
    (write,) = (op for op in view if op.type == "AssignAddVariableOp")
    assert write.inputs[0].op in view.variables
    assert not any("Call" in op.type for op in view)


def test_a_variable_that_is_bound_twice_is_taken_by_one_handle_in_the_order_of_the_trace() -> None:
    found = view_of_function(*model_of(twice, ("w", "w"), w=((4,), True)))
    first, second = (op for op in found.view if op.type == "AssignAddVariableOp")
    assert first.inputs[0] == second.inputs[0] and found.reordered == ("w",)
    assert first.name in second.controls
    apart = view_of_function(*model_of(twice, ("w", "v"), w=((4,), True), v=((4,), True)))
    assert apart.reordered == ()


def test_where_the_file_does_not_say_what_is_trained_that_is_guessed() -> None:
    assert view_of_function(*model_of(once, ("w",), w=((4,), None))).guessed


def test_a_function_that_is_bound_to_more_than_it_takes_makes_no_sense() -> None:
    model, offered = model_of(once, ("w",), w=((4,), True))
    with pytest.raises(ModelFileError, match="bound to more than it takes"):
        view_of_function(model, BoundFunction(offered.name, ("w",) * 3))


def test_of_a_graph_what_its_roots_need_is_read_and_nothing_else() -> None:
    with tf.Graph().as_default() as graph:
        w = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=(4,), name="w")
        tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=(4,), name="unused")
        x = tf.raw_ops.Placeholder(dtype=tf.float32, shape=(4,), name="x")
        train = ADD(resource=w, value=x, name="train")
        tf.square(x, name="other")
    assert train.name == "train"
    variables = {key: ModelVariable(key, (4,), 1, True) for key in ("w", "unused")}
    handles = {key: key for key in variables}
    model = Model("GraphDef", graph.as_graph_def(), {}, (), variables, handles, (), (), ())
    view = view_of_graph(model, ["train"]).view
    assert {op.name for op in view} == {"w", "x", "train"}
    assert set(view.variables) == {"w"} and view.own_inputs == {"x"}
