"""Real programs on workers, plain and then in rounds for which all are in time.

    python -m tests.partial_sums.rounds.programs_run NAMES

with TF_CONFIG. It prints, for each program, in how many weights and slots the bits differ and
whether it was summed in rounds, or the error, as a line of JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf

from tests.real import program_run
from tests.real.corpus import programs
from tests.real.program import WORKERS
from tests.workers.keras_on_workers import keras_on_workers
from tf_wu_shard.partial_sums.options import FLAG
from tf_wu_shard.partial_sums.rounds.rounds import Rounds

_waits_for_room = Rounds._wait_for_room


def _in_time(self: Rounds, number: int) -> bool:
    """A worker takes part once its own gradient is there."""
    with self._changed:
        self._changed.wait_for(lambda: self._num_handed_in > number or self._ended is not None)
    return _waits_for_room(self, number)


def _compared(strategy: tf.distribute.Strategy, name: str) -> Any:
    program = programs()[name]
    plain, wanted = program_run.run(strategy, program, sharded=False)
    if plain["error"]:
        return f"plain: {plain['error'].strip().splitlines()[-1]}"
    tf.config.optimizer.set_experimental_options({FLAG: True})
    facts, found = program_run.run(strategy, program, sharded=False)
    tf.config.optimizer.set_experimental_options({FLAG: False})
    if facts["error"]:
        print(name, facts["error"], file=sys.stderr)
        return facts["error"].strip().splitlines()[-1]
    # What is seen of a step, such as its loss, may be of the round before.
    kept = [key for key in wanted if not key.startswith("seen")]
    different = [
        key
        for key in kept
        if key not in found or not np.array_equal(wanted[key], found[key], equal_nan=True)
    ]
    said = [report["changes"].get(FLAG, "") for report in facts["reports"]]
    return len(different), any("summed in rounds" in one for one in said)


def main(names: list[str]) -> None:
    """Runs them and prints."""
    strategy = program_run._strategy(WORKERS)
    with keras_on_workers(), mock.patch.object(Rounds, "_wait_for_room", _in_time):
        found = {name: _compared(strategy, name) for name in names}
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
