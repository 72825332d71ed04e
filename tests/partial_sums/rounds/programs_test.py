"""Other people's programs in small, on workers: where all are in time, no weight is another."""

from __future__ import annotations

import pytest

from tests.real.corpus import programs
from tests.real.program import WORKERS
from tests.workers.processes import launch

# Why they cannot be summed in rounds.
REFUSED = {
    "gan": "follows from another sum of the same step",
    "simclr": "follows from another sum of the same step",
    "wgan_gp": "has 3 gradients that are summed in one step",
    "loop_over_padded": "made of what replicas put together before",
    "keras_two_mixed_float16": "takes the gradients of 8 weights",
    "keras_two_words_counted": "takes another sum over the replicas",
}

NAMES = sorted(name for name, program in programs().items() if WORKERS not in program.refused)
GROUPS = [NAMES[start::15] for start in range(15)]


@pytest.mark.slow
@pytest.mark.parametrize("names", GROUPS, ids=lambda names: names[0])
def test_in_time_no_weight_is_another(names: list[str]) -> None:
    for worker in launch("tests.partial_sums.rounds.programs_run", names, seconds=900):
        found = worker.answer
        assert sorted(found) == sorted(names)
        for name, one in found.items():
            if name in REFUSED:
                assert REFUSED[name] in one, name
            else:
                assert one == [0, True], name
