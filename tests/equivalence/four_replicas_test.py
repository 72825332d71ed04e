"""At 4 replicas, weights and slots after 20 steps: sharded against unmodified, summed in order."""

from __future__ import annotations

import pytest

from tests.equivalence import matrix
from tests.equivalence.configurations import Configuration
from tests.equivalence.matrix import Runs
from tests.selection import selected


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(selected(request, "configuration"), tmp_path_factory.mktemp("four_replicas"))


@pytest.mark.parametrize("configuration", matrix.parameters(4))
def test_a_sharded_run_agrees_bit_for_bit_with_the_unmodified_run_that_sums_in_order(
    configuration: Configuration, runs: Runs
) -> None:
    unmodified = runs.result("in_order", configuration)
    sharded = runs.result("sharded", configuration)
    matrix.check_everything_moved(unmodified)
    assert unmodified.facts["reports"] == []
    matrix.check_sharded(configuration, sharded)
    assert matrix.differences(unmodified.tensors, sharded.tensors) == {}
