"""Exports steps with branches and loops, and prints what the live pass shares of each.

    python -m tests.inspection.nested_exports FOLDER [NAME...]

In a process of its own, as emulation changes what runs. Each scenario is traced twice: without the
flag, every function that its net runs being exported instead, and with it, for the pass's reports.
"""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_wu_shard
from tests.equivalence.in_process import turn_off, turn_on
from tests.equivalence.nested_scenarios import SCENARIOS
from tests.equivalence.net import OUTPUTS, WIDTH, Net, Replica
from tests.model_files.exported import save
from tf_wu_shard.emulation import emulated_tpu_strategy
from tf_wu_shard.report.report import Report
from tf_wu_shard.tensorflow_private import tpu_graph

# Those that train by functions of a net, and by nothing else.
NAMES = (
    *("accumulated", "averaged", "overflowing", "overflowing_on_one", "looped", "branched"),
    *("adversarial", "called", "handed_a_slot", "own_factor"),
)
REPLICAS = 4


class Exporting:
    """Stands in for `Net.run`: exports what it would run, each function once."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._done: set[str] = set()

    def run(self, net: Net, replica: Replica, count: int, *_: Any) -> list[np.ndarray]:
        """Exports a function of a net; returns zeros."""
        name = replica.__qualname__.rpartition(".")[2]
        if name not in self._done:
            self._done.add(name)
            save(_OnTpu(net, replica), self._folder / name, {})
        return [np.zeros((), np.float32)] * count


class _OnTpu(tf.Module):
    def __init__(self, net: Net, replica: Replica) -> None:
        super().__init__()
        self.model, self.optimizer = net.model, net.optimizer
        self._net, self._replica = net, replica
        graph = self.step.get_concrete_function().graph
        # A module exports the variables that it knows.
        self.others = list(tpu_graph.replicated_variables(graph).values())

    @tf.function(input_signature=[tf.TensorSpec((4, WIDTH)), tf.TensorSpec((4, OUTPUTS))])
    def step(self, rows: Any, wanted: Any) -> Any:
        """A step of all replicas."""
        strategy = self._net.strategy
        return strategy.reduce("SUM", strategy.run(self._replica, (rows, wanted)), axis=None)


def shared(reports: Iterable[Report]) -> dict[str, list[Any]]:
    """For each variable that is shared, how it is cut, and its slots."""
    return {v.name: [v.layout, *v.slots] for report in reports for v in report.variables}


def main(folder: pathlib.Path, *names: str) -> None:
    """Writes each scenario's SavedModels into a folder of its name; prints JSON.

    For each scenario what the live pass shares.
    """
    strategy = emulated_tpu_strategy(REPLICAS)
    live: dict[str, dict[str, Any]] = {}
    run = Net.run
    for name in names or NAMES:
        turn_off()
        # Names are counted from the start.
        keras.backend.clear_session()
        exporting = Exporting(folder / name)
        Net.run = lambda net, *given, to=exporting: to.run(net, *given)  # type: ignore[method-assign]
        SCENARIOS[name](strategy)
        Net.run = run  # type: ignore[method-assign]
        tf_wu_shard.clear_reports()
        turn_on()
        keras.backend.clear_session()
        SCENARIOS[name](strategy)
        turn_off()
        live[name] = shared(tf_wu_shard.reports())
    print(json.dumps(live))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), *sys.argv[2:])
