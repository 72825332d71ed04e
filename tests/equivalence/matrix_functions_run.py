"""Trains with matrix functions under an emulated TPUStrategy, without and with the flag.

    TF_ENABLE_ONEDNN_OPTS=0 python -m tests.equivalence.matrix_functions_run '{"replicas": ...}'

In a process of its own, without what may round the same sums otherwise in two graphs: oneDNN, and
Grappler.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.equivalence.in_process import both, compiled, in_shards, state, step_of, turn_off
from tests.equivalence.matrix import relative_difference
from tests.equivalence.matrix_optimizers import (
    ClippedMuon,
    Cooled,
    Shampoo,
    TensorShampoo,
    root_by_newton,
)
from tf_wu_shard.emulation import emulated_tpu_strategy

k = keras.optimizers
STEPS = 20


@dataclasses.dataclass(frozen=True)
class Case:
    """What is trained.

    Attributes:
        optimizer: Makes the optimizer.
        units: Of each layer, after 24 inputs.
        constraint: Makes the kernels' constraint.
        interrupted: Whether half-way all is written to a checkpoint, trained on, and restored.
    """

    optimizer: Callable[[], keras.optimizers.Optimizer]
    units: tuple[int, ...] = (64, 64, 64, 40)
    constraint: Callable[[], keras.constraints.Constraint | None] = lambda: None
    interrupted: bool = False


def scaled(inner: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:
    """One that skips steps: 1e38 times the loss overflows, and the scale is halved until not."""
    return k.LossScaleOptimizer(inner, initial_scale=2.0**127, dynamic_growth_steps=3)


CASES = {
    "Muon": Case(lambda: k.Muon(0.01)),
    "Muon, clipped, averaged": Case(lambda: k.Muon(0.01, clipnorm=0.5, use_ema=True)),
    "Muon, interrupted": Case(lambda: k.Muon(0.01), interrupted=True),
    "Muon of scaled losses": Case(lambda: scaled(k.Muon(0.01))),
    "Muon, accumulating": Case(lambda: k.Muon(0.01, gradient_accumulation_steps=2)),
    "Muon, overwriting": Case(
        lambda: k.Muon(0.01, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=3)
    ),
    "Muon, clipped after": Case(lambda: ClippedMuon(0.01)),
    "Muon of unit norms": Case(lambda: k.Muon(0.01), constraint=keras.constraints.UnitNorm),
    "Muon of wide rows": Case(lambda: k.Muon(0.01), (512, 16, 512, 16, 512)),
    "outside values of their own": Case(lambda: Cooled(0.01)),
    "Shampoo by eigenvalues": Case(lambda: Shampoo(0.01)),
    "Shampoo by Newton": Case(lambda: Shampoo(0.01, root_by_newton)),
    "Shampoo, interrupted": Case(lambda: Shampoo(0.01), interrupted=True),
    "Shampoo of scaled losses": Case(lambda: scaled(Shampoo(0.01))),
    "Shampoo of any order": Case(lambda: TensorShampoo(0.01), (40, 48, 32)),
}


def main(job: dict[str, Any]) -> None:
    """Prints, as one line of JSON, what came of each case of the job."""
    strategy = emulated_tpu_strategy(job["replicas"], job["topology"])
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    reordered = job["reordered"]
    print(
        json.dumps(
            {name: compared(strategy, CASES[name], name in reordered) for name in job["cases"]}
        )
    )


def compared(strategy: tf.distribute.TPUStrategy, case: Case, reordered: bool) -> dict[str, Any]:
    """Trains twice; where asked for, also unsharded with the examples in another order.

    Returns:
        `apart`: how far each weight and slot differs, relative to its largest element; `moved`: the
        same of the unsharded trainings in two orders, all 0 where that was not asked for; `whole`:
        of each matrix in shards, where its functions have whole tensors; `left`: why the others are
        left alone; `not_in_shards`: paths of slots of sharded matrices that are whole; `emitted`:
        all collectives of the reports.
    """
    runs = both(lambda: trained(strategy, case))
    variables = [v for report in runs.reports for v in report.variables]
    left = [v for report in runs.reports for v in report.left_alone]
    sharded = {v.shape for v in variables}
    emitted: dict[str, int] = {}
    for report in runs.reports:
        for kind, count in report.emitted.items():
            emitted[kind] = emitted.get(kind, 0) + count
    backward = runs.unsharded
    if reordered:
        turn_off()
        keras.utils.set_random_seed(7)
        backward = [v.numpy() for v in trained(strategy, case, backward=True)]
    return {
        "apart": _apart(runs.unsharded, runs.sharded),
        "moved": _apart(runs.unsharded, backward),
        "whole": {str(v.shape): v.whole for v in variables if len(v.shape) == 2},
        "left": {v.name.rpartition("/")[2]: v.reason for v in left if "kernel" in v.name},
        "not_in_shards": [
            v.path
            for v in runs.variables
            if tuple(v.shape) in sharded and "accumulator" not in v.path and not in_shards(v)
        ],
        "emitted": emitted,
    }


def _apart(one: Sequence[np.ndarray], other: Sequence[np.ndarray]) -> list[float]:
    return [
        0.0 if a.tobytes() == b.tobytes() else relative_difference(a, b)
        for a, b in zip(one, other, strict=True)
    ]


def trained(
    strategy: tf.distribute.TPUStrategy, case: Case, *, backward: bool = False
) -> list[keras.Variable]:
    """The weights and slots after training; examples may stand `backward`."""

    def build() -> keras.Model:
        layers = [
            keras.layers.Dense(
                units,
                activation="tanh",
                kernel_initializer=keras.initializers.GlorotUniform(number),
                kernel_constraint=case.constraint(),
            )
            for number, units in enumerate(case.units)
        ]
        return keras.Sequential([keras.layers.Input((24,)), *layers])

    model = compiled(strategy, build, case.optimizer, built=True)
    step = step_of(strategy, model, backward=backward)
    for _ in range(STEPS // 2):
        step()
    if case.interrupted:
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
            path = checkpoint.save(str(pathlib.Path(folder) / "half"))
            step()
            checkpoint.restore(path).assert_consumed()
    for _ in range(STEPS // 2):
        step()
    return state(model)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
