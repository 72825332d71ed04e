"""What cannot be turned into HLO is one line."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from tf_wu_shard.tensorflow_private import xla_ir
from tf_wu_shard.tpu_compiler.body import Argument, ReplicaBody
from tf_wu_shard.tpu_compiler.hlo import LoweringError, hlo_of


def body() -> ReplicaBody:
    arguments = (Argument("x", 1, (4,), False), Argument("w", 1, (2, 2), True))
    return ReplicaBody(tf.compat.v1.GraphDef(), arguments, ("y:0",), ("step",), 8)


def test_tensors_and_variables_are_told_apart_with_their_shapes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(xla_ir, "hlo_of", lambda graph_def, **named: given.update(named) or b"hlo")
    assert hlo_of(body()) == b"hlo"
    assert given["tensors"] == {"x": tf.TensorSpec((4,), tf.float32)}
    assert given["variables"] == {"w": tf.TensorSpec((2, 2), tf.float32)}
    assert (given["outputs"], given["effects"]) == (("y:0",), ("step",))


def test_what_tensorflow_says_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for error in (
        tf.errors.InvalidArgumentError(None, None, "no kernel\nstack"),
        ValueError("no kernel\n"),
    ):

        def fail(graph_def: Any, error: Exception = error, **named: Any) -> bytes:
            raise error

        monkeypatch.setattr(xla_ir, "hlo_of", fail)
        with pytest.raises(LoweringError) as raised:
            hlo_of(body())
        assert str(raised.value) == "the step cannot be turned into HLO: no kernel"
