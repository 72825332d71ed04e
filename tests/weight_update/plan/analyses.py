"""Small analyses, made by hand: what the planner and the report read."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tf_wu_shard.graph.op import Value
from tf_wu_shard.refusals import Rules
from tf_wu_shard.step.reductions import GradientReduction
from tf_wu_shard.weight_update.analysis.types import (
    Analysis,
    RefusedUpdate,
    UpdatedVariable,
    WeightUpdate,
)

FLOAT32, FLOAT64, FLOAT16 = 1, 2, 19


@dataclasses.dataclass(frozen=True)
class Weight:
    """A weight with the slots of its optimizer."""

    name: str
    shape: tuple[int, ...]
    slots: tuple[str, ...] = ()
    dtype: int = FLOAT32
    slot_dtype: int = FLOAT32
    carrier: str = ""


def analysis_of(
    weights: Sequence[Weight], *, replicas: int = 4, refused: Sequence[Weight] = ()
) -> Analysis:
    """The analysis of a step that trains `weights` and whose update of `refused` it refused."""
    reductions = []
    for key, weight in enumerate((*weights, *refused)):
        size = 1
        for dim in weight.shape:
            size *= dim
        carrier = weight.carrier or f"reduce_{weight.name}"
        reductions.append(
            GradientReduction(
                key=key,
                operands=tuple(Value(f"g_{weight.name}_{r}") for r in range(replicas)),
                results=tuple(Value(f"s_{weight.name}_{r}") for r in range(replicas)),
                size=size,
                dtype=weight.dtype,
                divisor=1,
                carriers=tuple(f"{carrier}_{r}" for r in range(replicas)),
            )
        )
    devices = tuple(f"d{r}" for r in range(replicas))
    updates = [
        WeightUpdate(
            (_variable(w.name, w, False), *(_variable(s, w, True) for s in w.slots)),
            (key,),
            (),
            devices,
        )
        for key, w in enumerate(weights)
    ]
    refusals = [
        RefusedUpdate(w.name, (len(weights) + i,), Rules.NO_RULE.at("Sum_1", op_type="Sum"))
        for i, w in enumerate(refused)
    ]
    return Analysis("f1", replicas, tuple(reductions), tuple(updates), tuple(refusals), refusals=())


def _variable(key: str, weight: Weight, is_slot: bool) -> UpdatedVariable:
    dtype = weight.slot_dtype if is_slot else weight.dtype
    return UpdatedVariable(key, (), weight.shape, dtype, is_slot)
