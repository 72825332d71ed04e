"""The proof of ops that write variables: on shards of the variables they do what they do whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tf_wu_shard.layout import AnyLayout
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.rules.fused import FUSED
from tf_wu_shard.rules.variables import WRITES
from tools.rule_proof.samples import definition, run_op, shapes
from tools.rule_proof.shards import cut, layouts, together

# What a kernel requires of a scalar, by its name.
_SCALARS: dict[str, Any] = {
    "global_step": np.int64(3),
    "lr_power": np.float32(-0.5),
    "momentum": np.float32(0.3),
}


def disagreements(op_type: str, random: np.random.Generator) -> Iterator[str | Refusal | None]:
    """For each call of an update, under each of some layouts, how shards and whole differ."""
    for shape in shapes(random):
        values = _operands(op_type, random, shape)
        before = values[: _num_handles(op_type)]
        whole = _apply(op_type, values)
        if all(w.tobytes() == b.tobytes() for w, b in zip(whole, before, strict=True)):
            yield f"{op_type} changes nothing; its sample values prove nothing"
        for layout in layouts(random, shape, 4):
            yield _disagreement(op_type, values, whole, layout)


def _disagreement(
    op_type: str, values: list[np.ndarray], whole: list[np.ndarray], layout: AnyLayout
) -> str | None:
    shards = []
    for replica in range(layout.num_shards):
        own = [
            cut(v, layout, replica) if _is_cut(op_type, number) else v
            for number, v in enumerate(values)
        ]
        shards.append(_apply(op_type, own))
    for number, expected in enumerate(whole):
        found = together([shard[number] for shard in shards], layout)
        if found.tobytes() != expected.tobytes():
            return (
                f"variable {number} of {op_type} of {list(layout.shape)} cut as {layout} becomes"
                f" {found.reshape(-1)[:6]} in shards, {expected.reshape(-1)[:6]} whole"
            )
        if not np.isfinite(expected).all():
            return f"variable {number} of {op_type} is not finite; its sample values are bad"
    return None


def _num_handles(op_type: str) -> int:
    return FUSED[op_type].num_handles if op_type in FUSED else 1


def _is_cut(op_type: str, operand: int) -> bool:
    gradient = FUSED[op_type].gradient if op_type in FUSED else 1
    return operand < _num_handles(op_type) or operand == gradient


def _operands(
    op_type: str, random: np.random.Generator, shape: tuple[int, ...]
) -> list[np.ndarray]:
    values: list[np.ndarray] = []
    for number, argument in enumerate(definition(op_type).input_arg):
        if _is_cut(op_type, number):
            # Accumulators are squares; a centered one is above the square of the mean.
            values.append(np.asarray(random.uniform(1, 2, shape), np.float32))
        elif argument.name in _SCALARS:
            values.append(np.asarray(_SCALARS[argument.name]))
        else:
            values.append(np.asarray(random.uniform(0.1, 0.4), np.float32))
    if op_type == "ResourceApplyCenteredRMSProp":
        values[1] = values[1] * np.float32(0.1)
    return values


def _apply(op_type: str, values: list[np.ndarray]) -> list[np.ndarray]:
    """The variables after one update whose operands have these values."""
    count = _num_handles(op_type)
    variables = [tf.Variable(v) for v in values[:count]]
    # A write of a variable is, on a weight's shard, the arithmetic that it stands for.
    arithmetic = WRITES.get(op_type)
    if arithmetic is not None:
        return list(run_op(arithmetic, values, {}))
    run_op(op_type, [*(v.handle for v in variables), *values[count:]], {})
    return [np.array(v.numpy()) for v in variables]
