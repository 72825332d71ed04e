"""An op is traced back to the line that made it, one written out of a branch to the branch."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from tf_wu_shard.tensorflow_private.op_traces import debug_info, frames


def made_here() -> tf.Tensor:
    return tf.square(tf.constant(2.0), name="mine")


@pytest.fixture(scope="module")
def graph() -> Any:
    return tf.function(made_here, autograph=False).get_concrete_function().graph


def test_the_stack_ends_where_the_op_was_made(graph: Any) -> None:
    found = frames(graph, "mine")
    assert any(
        name == "made_here" and file.endswith("op_traces_test.py") for file, _, name in found
    )


def test_an_op_that_was_written_out_has_the_stack_of_what_had_it(graph: Any) -> None:
    assert frames(graph, "mine/then/inner") == frames(graph, "mine")


def test_an_op_that_is_not_there_has_none(graph: Any) -> None:
    assert frames(graph, "other") == frames(graph, "other/mine") == frames(graph, "") == []


def test_what_a_model_would_keep_names_the_file(graph: Any) -> None:
    info = debug_info({"step": graph})
    assert any(file.endswith("op_traces_test.py") for file in info.files)
