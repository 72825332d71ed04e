"""What TensorFlow would run under a name is what was traced, unless something replaced it."""

from __future__ import annotations

import tensorflow as tf

from tf_wu_shard.tensorflow_private.function_definition import (
    called_functions,
    definition_of,
    function_names,
    op_types,
)


def test_a_traced_function_is_known_by_its_name_with_all_that_it_calls() -> None:
    inner = tf.function(tf.square, autograph=False)
    outer = tf.function(lambda x: inner(x) + 1.0, autograph=False)
    traced = outer.get_concrete_function(tf.TensorSpec((2,)))
    assert op_types(traced.graph) >= {"Placeholder", "PartitionedCall", "AddV2"}
    (called,) = called_functions(traced.graph)
    definition = definition_of(called)
    assert definition is not None and definition.signature.name == called
    assert any(node.op == "Square" for node in definition.node_def)
    assert called in function_names()


def test_a_name_that_nobody_has_is_none() -> None:
    assert definition_of("no_such_function") is None
    assert "no_such_function" not in function_names()
