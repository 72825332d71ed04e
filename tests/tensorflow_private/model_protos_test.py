"""Each message is empty and new, and reads what TensorFlow writes of its kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tf_wu_shard.tensorflow_private import model_protos

MAKERS = [
    model_protos.saved_model,
    model_protos.meta_graph,
    model_protos.graph_def,
    model_protos.function_library,
    model_protos.variable_def,
    model_protos.bundle_entry,
    model_protos.debug_info,
]


@pytest.mark.parametrize("make", MAKERS)
def test_a_message_is_empty_and_nobody_elses(make: Callable[[], Any]) -> None:
    assert make().ByteSize() == 0 and make() is not make()


def test_a_graph_and_its_functions_are_read() -> None:
    with tf.Graph().as_default() as graph:
        tf.compat.v1.placeholder(tf.float32, name="x")
        meta = tf.compat.v1.train.export_meta_graph()
    assert model_protos.graph_def().FromString(graph.as_graph_def().SerializeToString()).node
    assert model_protos.meta_graph().FromString(meta.SerializeToString()).graph_def.node
