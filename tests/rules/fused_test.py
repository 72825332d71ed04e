"""A fused update computes lane by lane, and its table reads its operands as TensorFlow does."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tf_wu_shard.layout import flat_layout
from tf_wu_shard.rules.fused import FUSED
from tf_wu_shard.tensorflow_private import function_graph

SHAPE = (5, 9)


def names(op_type: str) -> list[str]:
    definition = function_graph.op_def(op_type)
    assert definition is not None
    return [argument.name for argument in definition.input_arg]


@pytest.mark.parametrize("op_type", FUSED)
def test_handles_come_first_and_the_gradient_where_the_table_says(op_type: str) -> None:
    definition = function_graph.op_def(op_type)
    assert definition is not None
    handles = [a.type == tf.resource.as_datatype_enum for a in definition.input_arg]
    count = FUSED[op_type].num_handles
    assert handles == [True] * count + [False] * (len(handles) - count)
    assert definition.input_arg[FUSED[op_type].gradient].name in ("grad", "delta")


def apply(op_type: str, values: list[np.ndarray]) -> list[np.ndarray]:
    """The variables after one fused update whose operands have these values."""
    fused = FUSED[op_type]
    variables = [tf.Variable(v) for v in values[: fused.num_handles]]
    operands = [v.handle for v in variables] + values[fused.num_handles :]
    getattr(tf.raw_ops, op_type)(**dict(zip(names(op_type), operands, strict=True)))
    return [v.numpy() for v in variables]


@pytest.mark.parametrize("replicas", [2, 5])
@pytest.mark.parametrize("op_type", FUSED)
def test_shards_agree_with_the_whole(op_type: str, replicas: int) -> None:
    random, fused = np.random.default_rng(5), FUSED[op_type]
    values: list[np.ndarray] = []
    for number, name in enumerate(names(op_type)):
        if name == "global_step":
            values.append(np.array(3, np.int64))
        elif name == "lr_power":
            values.append(np.array(-0.5, np.float32))
        elif number < fused.num_handles or number == fused.gradient:
            # Accumulators are squares; a centered one is above the square of the mean.
            values.append(np.asarray(random.uniform(1, 2, SHAPE), np.float32))
        else:
            values.append(np.asarray(random.uniform(0.1, 0.4), np.float32))
    if op_type == "ResourceApplyCenteredRMSProp":
        values[1] = values[1] * np.float32(0.1)
    whole = apply(op_type, values)
    layout = flat_layout(SHAPE, replicas, 4)
    shards = []
    for replica in range(replicas):
        start, stop = layout.bounds(replica)
        shards.append(apply(op_type, [v.reshape(-1)[start:stop] if v.shape else v for v in values]))
    for number, expected in enumerate(whole):
        together = np.concatenate([shard[number] for shard in shards])
        assert together.tobytes() == expected.tobytes()
        assert np.isfinite(together).all()
    assert any((w != v).any() for w, v in zip(whole, values[: fused.num_handles], strict=True))
