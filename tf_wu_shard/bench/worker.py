"""The measured process of one mode: `python -m tf_wu_shard.bench.worker`.

Commands, in this order: `build` (settings, mode), then any of `step`, `memory`, `reports`, `slots`
and `weights` (replica, file). The first step traces. It ends when its standard input does.
"""

from __future__ import annotations

import sys
from typing import Any

import keras
import numpy as np

import tf_wu_shard
from tf_wu_shard.bench import resident_memory, training
from tf_wu_shard.bench.conversation import Channel
from tf_wu_shard.bench.settings import Settings


class _Measured:
    """Answers the commands that come between steps."""

    def __init__(self, channel: Channel, model: keras.Model, bytes_after_imports: int) -> None:
        self._channel = channel
        self._model = model
        self._bytes_after_imports = bytes_after_imports

    def between(self, *step: float) -> None:
        """Answers the step that is over, if any, and every command until the next step.

        Args:
            *step: Its seconds and the mean loss so far.
        """
        if step:
            self._channel.answer(dict(zip(("seconds", "mean_loss"), step, strict=True)))
        while True:
            command = self._channel.command()
            if command is None:
                sys.exit()
            if command["command"] == "step":
                return
            self._channel.answer(self._answer(**command))

    def _answer(self, command: str, **arguments: Any) -> Any:
        if command == "memory":
            return resident_memory.peak_bytes() - self._bytes_after_imports
        if command == "reports":
            return [_report_numbers(report) for report in tf_wu_shard.reports()]
        if command == "slots":
            return training.slot_bytes(self._model)
        assert command == "weights", f"no command is called {command}"
        return self._save_weights(**arguments)

    def _save_weights(self, replica: int, file: str) -> None:
        strategy = self._model.distribute_strategy
        copies = [
            strategy.experimental_local_results(variable.value)[replica].numpy()
            for variable in self._model.weights
        ]
        np.savez(file, *copies)


def _report_numbers(report: Any) -> dict[str, float]:
    return {
        "pass_ms": report.pass_ms,
        "trace_ms": report.trace_ms,
        "sharded_variables": len(report.variables),
        "slot_bytes_sharded": report.slot_bytes_per_replica.sharded,
    }


def main() -> int:
    """Serves one parent; returns the exit status."""
    bytes_after_imports = resident_memory.peak_bytes()
    channel = Channel()
    first = channel.command()
    if first is None:
        return 0
    try:
        settings = Settings(**first["settings"])
        model = training.compiled_model(settings, first["mode"])
        channel.answer({"parameter_bytes": training.num_bytes(model.trainable_variables)})
        measured = _Measured(channel, model, bytes_after_imports)
        training.fit(model, settings, measured.between)
    # Whatever it was, the parent is to hear of it; here it would only be printed.
    except Exception as error:
        channel.fail(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
