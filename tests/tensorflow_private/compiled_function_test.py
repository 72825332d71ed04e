"""A function for XLA is made once for each name, compiled, and gone with its last user."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tf_wu_shard.tensorflow_private import compiled_function
from tf_wu_shard.tensorflow_private.compiled_function import make_compiled_function


def made(name: str) -> Any:
    """x * x + 1 of vectors of four."""
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [4], "x")
        tf.add(x * x, 1.0, name="y")
    return make_compiled_function(name, graph.as_graph_def().node, ["x"], ["y:0"], [])


def test_xla_compiles_what_it_computes() -> None:
    function = made("compiled_function_test_computes")
    assert function.cached_definition.attr["_XlaMustCompile"].b
    (found,) = function.call_flat(tf.constant([0.0, 1.0, 2.0, 3.0]))
    np.testing.assert_array_equal(found, [1.0, 2.0, 5.0, 10.0])


def test_equal_names_are_one_function_as_long_as_it_is_in_use() -> None:
    name = "compiled_function_test_once"
    function = made(name)
    assert made(name) is function
    del function
    gc.collect()
    assert name not in {known for _, known in compiled_function._COMPILED}


def test_what_tensorflow_does_not_accept_is_an_error() -> None:
    node = tf.compat.v1.NodeDef(name="y", op="Neg", input=["gone"])
    node.attr["T"].type = tf.float32.as_datatype_enum
    with pytest.raises(tf.errors.InvalidArgumentError, match="gone"):
        make_compiled_function("compiled_function_test_broken", [node], [], ["y:0"], [])
