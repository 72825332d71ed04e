"""Updates that XLA compiles exactly: at 2 replicas, weights and slots are the unmodified run's."""

from __future__ import annotations

import pytest

from tests.equivalence import matrix
from tests.equivalence.configurations import KERAS, Configuration
from tests.equivalence.matrix import Runs

# Bodies with products in a row, quotients of roots, powers, maxima, signs and tests of numbers.
_QUICK = ("adamw", "amsgrad", "centered_rmsprop", "ftrl", "lion", "nadam", "momentum_clipnorm")


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return matrix.selected_runs(request, tmp_path_factory.mktemp("compiled_updates"))


@pytest.mark.parametrize(
    "configuration",
    [
        pytest.param(
            Configuration(optimizer, "fit", "dense", 2, 1),
            id=optimizer,
            marks=() if optimizer in _QUICK else pytest.mark.slow,
        )
        for optimizer in KERAS
    ],
)
def test_a_compiled_run_agrees_bit_for_bit_with_the_unmodified_run(
    configuration: Configuration, runs: Runs
) -> None:
    unmodified = runs.result("baseline", configuration)
    compiled = runs.result("compiled", configuration)
    matrix.check_everything_moved(unmodified)
    matrix.check_sharded(configuration, compiled)
    assert compiled.facts["reports"][-1]["compile_update"] == "exact"
    assert matrix.differences(unmodified.tensors, compiled.tensors) == {}
