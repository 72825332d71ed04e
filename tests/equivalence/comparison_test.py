"""What the comparison calls different, and what stands behind its bit-for-bit criterion."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Mapping

import numpy as np
import pytest

from tests.equivalence import matrix
from tests.equivalence.configurations import Configuration
from tests.equivalence.matrix import Runs
from tests.selection import selected

# Where the unmodified strategy moves most when its order of summing changes.
RESTLESS = (
    Configuration("amsgrad", "fit", "conv", 4, 1),
    Configuration("nadam", "fit", "dense_embedding", 4, 1),
    Configuration("centered_rmsprop", "replica_function", "conv", 8, 1),
    Configuration("adam", "fit", "conv_batchnorm", 8, 1),
)

IN_ORDER = (
    Configuration("adam", "fit", "dense", 4, 1),
    Configuration("amsgrad", "replica_function", "conv", 8, None),
    Configuration("v1_adam", "replica_function", "dense_embedding", 4, 1),
    # More replicas than AddN sums in one go, and no power of two.
    Configuration("adamw", "fit", "dense", 11, 1),
)

QUICK = {IN_ORDER[0]}


# Runs of one number of replicas share a process.
RunsOf = Mapping[int, Runs]


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RunsOf:
    asked = selected(request, "configuration")
    folder = tmp_path_factory.mktemp("restless")
    return matrix.by_replicas([one for one in RESTLESS if one in asked], folder)


@pytest.fixture(scope="module")
def ordered(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RunsOf:
    asked = selected(request, "configuration")
    folder = tmp_path_factory.mktemp("in_order")
    return matrix.by_replicas([one for one in IN_ORDER if one in asked], folder)


@pytest.mark.parametrize("configuration", matrix.named_cases(RESTLESS, ()))
def test_a_sharded_run_moves_no_further_than_the_baseline_itself(
    configuration: Configuration, runs: RunsOf
) -> None:
    # Rounding differs with the order of a sum, and training amplifies it; how much is measured on
    # the unmodified strategy. The floor is a few roundings of float32 (6e-8) over 20 steps.
    baseline = runs[configuration.replicas].result("baseline", configuration).tensors
    reordered = runs[configuration.replicas].result("reordered", configuration).tensors
    sharded = runs[configuration.replicas].result("sharded", configuration).tensors
    # Otherwise the two unmodified runs would be one, and nothing would be said.
    assert matrix.differences(baseline, reordered)
    for name, tensor in baseline.items():
        allowed = max(1e-6, 4 * matrix.relative_difference(tensor, reordered[name]))
        assert matrix.relative_difference(tensor, sharded[name]) <= allowed, name


@pytest.mark.parametrize("configuration", matrix.named_cases(IN_ORDER, QUICK))
def test_the_dialect_agrees_bit_for_bit_with_the_reference(
    configuration: Configuration, ordered: RunsOf
) -> None:
    same = ordered[configuration.replicas]
    sharded = same.result("sharded", configuration)
    reference = same.result("reference", configuration)
    matrix.check_sharded(configuration, sharded)
    matrix.check_sharded(configuration, reference)
    matrix.check_everything_moved(reference)
    assert matrix.differences(reference.tensors, sharded.tensors) == {}


@pytest.mark.parametrize("configuration", matrix.named_cases(IN_ORDER[:2], QUICK))
def test_two_sharded_runs_agree_bit_for_bit(
    configuration: Configuration, ordered: RunsOf, tmp_path: pathlib.Path
) -> None:
    first = ordered[configuration.replicas].result("sharded", configuration).tensors
    again = Runs([configuration], tmp_path).result("sharded", configuration).tensors
    assert matrix.differences(first, again) == {}


def test_a_rewrite_that_loses_the_decay_is_caught(tmp_path: pathlib.Path) -> None:
    configurations = (
        Configuration("adamw", "fit", "dense", 2, 1),
        Configuration("adam", "fit", "dense", 2, 1),
    )
    runs = Runs(configurations, tmp_path)
    decaying, plain = configurations
    apart = matrix.differences(
        runs.result("baseline", decaying).tensors, runs.result("decay_lost", decaying).tensors
    )
    weights = [name for name in apart if name.startswith("trained")]
    assert len(weights) == 7 and min(apart[name] for name in weights) > 1e-4
    # With one write a weight the sabotage has nothing to lose: it is the decay that was caught.
    assert not matrix.differences(
        runs.result("baseline", plain).tensors, runs.result("decay_lost", plain).tensors
    )


def test_one_flipped_bit_is_a_difference() -> None:
    one = np.array([1.0, 2.0], np.float32)
    other = np.nextafter(one, np.float32(3))
    assert matrix.differences({"a": one}, {"a": one.copy()}) == {}
    assert 0 < matrix.differences({"a": one}, {"a": other})["a"] < 1e-6
    assert matrix.differences({"a": np.zeros(1)}, {"a": -np.zeros(1)}) == {"a": 0.0}


def test_what_only_one_run_has_is_infinitely_different() -> None:
    one = np.ones(3, np.float32)
    assert matrix.differences({"a": one}, {}) == {"a": math.inf}
    assert matrix.differences({}, {"a": one}) == {"a": math.inf}
    assert matrix.differences({"a": one}, {"a": np.ones(4, np.float32)}) == {"a": math.inf}
    assert matrix.differences({"a": one}, {"a": one * np.nan}) == {"a": math.inf}
