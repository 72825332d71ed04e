"""Trains as one worker of several until something happens to one of them; see `faults_test`.

    TF_CONFIG=... python -m tests.equivalence.faults_run step | agreement | save  on | off

It prints a line before the moment in which a worker is to die.
"""

from __future__ import annotations

import pathlib
import sys
import tempfile
import time
from typing import Any

import tensorflow as tf

import tf_wu_shard
from tests.equivalence.in_process import turn_on
from tests.equivalence.nested_scenarios import adam
from tests.equivalence.net import INPUTS, TARGETS, Net


def main(moment: str, flag: str) -> None:
    """Trains; whoever lives on ends with an error."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    number = strategy.cluster_resolver.task_id
    net = Net(strategy, adam())
    given = net.spread(INPUTS), net.spread(TARGETS)

    @tf.function
    def step(rows: Any, wanted: Any) -> Any:
        return strategy.run(net.train, (rows, wanted))

    if flag == "on":
        turn_on(agreement_seconds=5.0, read_seconds=5.0)
    if moment == "agreement" and number == strategy.num_replicas_in_sync - 1:
        print("moment", flush=True)
        time.sleep(3600)
    print("tracing", flush=True)
    step(*given)
    print([report.verdict for report in tf_wu_shard.reports()], flush=True)
    with tempfile.TemporaryDirectory() as folder:
        kept = tf.train.Checkpoint(optimizer=net.optimizer)
        for count in range(10**6):
            if moment == "save":
                kept.save(str(pathlib.Path(folder) / "kept"))
            step(*given)
            if count == 2:
                print("moment", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
