"""Other people's programs in small: where nobody is late, not one bit of them is another."""

from __future__ import annotations

import pytest

from tests.real.corpus import programs
from tests.real.program import MIRRORED
from tests.workers.processes import launch

# Why they cannot let gradients be late.
REFUSED = {
    "wgan_gp": "has 3 gradients that are summed in one step",
    "mixed_float16": "outside of branches",
    "loop_over_padded": "made of what replicas put together before",
    "keras_two_text_classifier": "RandomUniform",
    "keras_two_gpt": "RandomUniform",
    "keras_two_fine_tuned": "RandomUniform",
    "keras_two_mixed_float16": "takes the gradients of 8 weights",
    "keras_two_words_counted": "takes another sum over the replicas",
}

# They train on no dataset that a strategy distributes, distribute what they evaluate on likewise,
# or fail in one process by themselves.
LEFT_OUT = {"train_on_batch", "loop_over_dataset", "keras_two_dense", "slots_in_first_step"}

NAMES = sorted(
    name
    for name, program in programs().items()
    if name not in LEFT_OUT and MIRRORED not in program.refused
)
GROUPS = [NAMES[start::9] for start in range(9)]


@pytest.mark.slow
@pytest.mark.parametrize("names", GROUPS, ids=lambda names: names[0])
def test_in_time_not_one_bit_is_another(names: list[str]) -> None:
    (process,) = launch("tests.partial_sums.programs_run", names, workers=1, seconds=900)
    found = process.answer
    assert sorted(found) == sorted(names)
    for name, one in found.items():
        if name in REFUSED:
            assert REFUSED[name] in one, name
        else:
            assert one == [0, True], name
