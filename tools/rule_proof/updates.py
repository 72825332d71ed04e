"""The proof of ops that write variables: on shards of the variables they do what they do whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tf_wu_shard.layout import AnyLayout
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.rules.writes import WRITES, num_written
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
        values = operands(op_type, random, shape)
        for layout in layouts(random, shape, 4):
            yield disagreement(op_type, values, layout)


def disagreement(op_type: str, values: list[np.ndarray], layout: AnyLayout) -> str | None:
    """How the shards of an update differ from the whole; None where they agree."""
    shards = []
    whole = _apply(op_type, values)
    if all(w.tobytes() == b.tobytes() for w, b in zip(whole, values, strict=False)):
        return f"{op_type} changes nothing; its sample values prove nothing"
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


def _is_cut(op_type: str, operand: int) -> bool:
    return operand < num_written(op_type) or operand == WRITES[op_type].operand


def operands(op_type: str, random: np.random.Generator, shape: tuple[int, ...]) -> list[np.ndarray]:
    """Sample values of an update of variables of a shape, in the order of its definition."""
    values: list[np.ndarray] = []
    for number, argument in enumerate(definition(op_type).input_arg):
        if _is_cut(op_type, number):
            # Accumulators are squares; a centered one is above the square of the mean.
            values.append(np.asarray(random.uniform(1, 2, shape), np.float32))
        elif argument.name in _SCALARS:
            values.append(np.asarray(_SCALARS[argument.name]))
        else:
            values.append(np.asarray(random.uniform(0.1, 0.4), np.float32))
    if op_type.endswith("ApplyCenteredRMSProp"):
        values[1] = values[1] * np.float32(0.1)
    return values


def _apply(op_type: str, values: list[np.ndarray]) -> list[np.ndarray]:
    """The variables after one update whose operands have these values."""
    # A write of a variable is, on a weight's shard, the arithmetic that it stands for.
    write = WRITES[op_type]
    if write.is_plain and write.on_values is not None:
        return list(run_op(write.on_values, values, {}))
    return applied(op_type, values, num_written(op_type))


def applied(op_type: str, values: list[np.ndarray], num_handles: int) -> list[np.ndarray]:
    """Variables after an op that writes them.

    Args:
        op_type: The op's type.
        values: Of its operands; of those that are handles, what their variables hold.
        num_handles: How many of the first operands are handles.
    """
    variables = [tf.Variable(v) for v in values[:num_handles]]
    run_op(op_type, [*(v.handle for v in variables), *values[num_handles:]], {})
    return [np.array(v.numpy()) for v in variables]
