"""The columns of the coverage matrix: what a training has besides its optimizer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal


@dataclasses.dataclass(frozen=True)
class Feature:
    """One column.

    Attributes:
        title: Its heading.
        options: Of the optimizer's constructor.
        policy: The dtype policy of the layers.
        keras_only: Whether it is something that only Keras optimizers have or do.
        constrained: Whether the kernels have a unit-norm constraint.
        sparse: Whether the first layer is an embedding, whose gradient is `tf.IndexedSlices`.
        loop: Where a `tf.range` loop of all steps stands, if there is one: "around" `strategy.run`
            or "inside" of it.
        scaled: Whether the optimizer is wrapped into a `LossScaleOptimizer`.
    """

    title: str
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    policy: str = "float32"
    keras_only: bool = False
    constrained: bool = False
    sparse: bool = False
    loop: Literal["", "around", "inside"] = ""
    scaled: bool = False


def _option(title: str, **options: Any) -> Feature:
    return Feature(title, options, keras_only=True)


FEATURES: dict[str, Feature] = {
    "plain": Feature("plain"),
    "weight_decay": _option("weight decay", weight_decay=0.1),
    # Norms and elements of the gradients are above these, so that every step is clipped.
    "clipnorm": _option("clipnorm", clipnorm=0.1),
    "clipvalue": _option("clipvalue", clipvalue=1e-3),
    "global_clipnorm": _option("global clipnorm", global_clipnorm=0.1),
    "ema": _option("EMA", use_ema=True, ema_momentum=0.9),
    "ema_overwriting": _option(
        "EMA overwriting", use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=2
    ),
    "accumulation": _option("gradient accumulation", gradient_accumulation_steps=2),
    "loss_scale": Feature("loss scale", keras_only=True, scaled=True),
    "mixed_bfloat16": Feature("mixed bfloat16", policy="mixed_bfloat16"),
    "embedding": Feature("embedding", sparse=True),
    "loop": Feature("loop of steps", loop="around"),
    "loop_inside": Feature("loop in a replica", loop="inside"),
    "constraint": Feature("unit norm", keras_only=True, constrained=True),
}
