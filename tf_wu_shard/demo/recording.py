"""What a training says while it goes on, and what was sharded and its variables hold in the end.

Progress is one JSON object a line on standard output. Nothing here knows which training it is.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

import tf_wu_shard
from tf_wu_shard.demo.runs import ShardedVariable, Sharding
from tf_wu_shard.report.report import percent_text


class Steps(keras.callbacks.Callback):
    """Records each step's own loss and time, and says so.

    Attributes:
        losses: One per step, of that step's batch alone.
        seconds: One per step.
    """

    def __init__(self) -> None:
        super().__init__()
        self.losses: list[float] = []
        self.seconds: list[float] = []
        self._begun = 0.0

    def on_train_batch_begin(self, batch: int, logs: dict[str, float] | None = None) -> None:
        """Begins a step."""
        # Keras reports the mean since the metrics were last reset; a step's own loss is wanted.
        self.model.reset_metrics()
        self._begun = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        """Ends a step, whose loss is read before its time is taken."""
        assert logs is not None
        self.losses.append(float(logs["loss"]))
        self.seconds.append(time.perf_counter() - self._begun)
        say({"step": batch + 1, "loss": self.losses[-1], "seconds": self.seconds[-1]})


def values(variables: Sequence[keras.Variable]) -> dict[str, np.ndarray]:
    """Returns whole variables by their number and path, as two of them may have one path."""
    return {
        f"{index:03d} {variable.path}": variable.numpy() for index, variable in enumerate(variables)
    }


def sharding() -> Sharding | None:
    """Reads the pass's report of the train step: of the reports, the one with most variables."""
    reports = tf_wu_shard.reports()
    if not reports:
        return None
    report = max(reports, key=lambda one: len(one.variables))
    return Sharding(
        verdict=report.verdict,
        text=str(report),
        variables=tuple(
            ShardedVariable(
                name=one.name,
                shape=one.shape,
                layout=one.layout,
                slots=one.slots,
                bucket=one.bucket,
                padding=one.padding,
                gathered_in=one.gathered_in,
            )
            for one in report.variables
        ),
        left_alone=tuple((one.name, one.reason) for one in report.left_alone),
        notes=report.notes,
        slot_bytes_unsharded=report.slot_bytes_per_replica.unsharded,
        slot_bytes_sharded=report.slot_bytes_per_replica.sharded,
        pass_ms=report.pass_ms,
        trace_ms=report.trace_ms,
        weight_bytes_unsharded=report.weight_bytes_per_replica.unsharded,
        weight_bytes_sharded=report.weight_bytes_per_replica.sharded,
        place=report.place,
        elements_sharded=percent_text(report.elements),
    )


def say(message: dict[str, Any]) -> None:
    """Says one thing to whoever started the process, as JSON knows it."""
    print(json.dumps(message), flush=True)
