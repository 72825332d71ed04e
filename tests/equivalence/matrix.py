"""Runs configurations in processes and holds their results against each other.

The criterion. At 2 replicas there is one order of summing, and sharded and unsharded runs agree bit
for bit. Above, the unmodified strategy's ring sums in another order than the owners of shards, who
add replica 0, 1, 2 ... So does the unmodified strategy when its own `ReductionToOneDevice` is told
to add strictly in that order, and a sharded run agrees bit for bit with *that* run: there is no
tolerance to hide in. How far the default order may be away is asked in comparison_test.py.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import json
import math
import os
import pathlib
import subprocess
import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tests.equivalence.configurations import Configuration, full_matrix, pairwise_cover

Tensors = Mapping[str, np.ndarray]

_ROOT = pathlib.Path(__file__).parents[2]

# Traced functions of finished runs are not all freed, so a process takes this many at most.
_RUNS_IN_A_PROCESS = 60

# What a variable must have to be sharded where min_elements is left to the dialect.
_DEFAULT_MIN_ELEMENTS = 1024


@dataclasses.dataclass(frozen=True)
class Result:
    """What one run left behind: tensors by name, and facts about the run."""

    tensors: Tensors
    facts: dict[str, Any]


class Runs:
    """Results by mode and configuration; each mode runs once, when first asked for."""

    def __init__(self, configurations: Sequence[Configuration], folder: pathlib.Path) -> None:
        self._configurations = configurations
        self._folder = folder
        self._failures: dict[str, str] = {}

    def result(self, mode: str, configuration: Configuration) -> Result:
        """The result of one run; fails the test where the run failed."""
        folder = self._folder / mode
        if mode not in self._failures:
            folder.mkdir()
            self._failures[mode] = run(mode, self._configurations, folder)
        written = folder / f"{configuration.name}.json"
        assert written.exists(), f"{mode} died before it came here:\n{self._failures[mode]}"
        facts = json.loads(written.read_text())
        assert not facts["error"], facts["error"]
        with np.load(folder / f"{configuration.name}.npz") as tensors:
            return Result(dict(tensors), facts)


def run(mode: str, configurations: Sequence[Configuration], folder: pathlib.Path) -> str:
    """Runs configurations in a mode, the results into a folder; returns what went wrong."""
    wrong = ""
    ordered = sorted(configurations, key=lambda one: one.replicas)
    for replicas, same in itertools.groupby(ordered, key=lambda one: one.replicas):
        for chunk in _chunks(list(same)):
            job = {
                "mode": mode,
                "replicas": replicas,
                "folder": str(folder),
                "configurations": [dataclasses.asdict(one) for one in chunk],
            }
            process = subprocess.run(
                [sys.executable, "-m", "tests.equivalence.training_run", json.dumps(job)],
                cwd=_ROOT,
                env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2"},
                capture_output=True,
                text=True,
                check=False,
            )
            if process.returncode:
                wrong += f"exit status {process.returncode}\n{process.stderr[-4000:]}\n"
    return wrong


def _chunks(configurations: list[Configuration]) -> list[list[Configuration]]:
    size = _RUNS_IN_A_PROCESS
    return [configurations[i : i + size] for i in range(0, len(configurations), size)]


def differences(expected: Tensors, got: Tensors) -> dict[str, float]:
    """The tensors that are not bit-identical, each with how far apart they are.

    Returns:
        For each such tensor, the largest difference relative to the expected tensor's largest
        element; infinite where shapes, names or non-finite elements differ.
    """
    apart = {name: math.inf for name in expected.keys() ^ got.keys()}
    for name in expected.keys() & got.keys():
        one, other = expected[name], got[name]
        if one.shape == other.shape and one.dtype == other.dtype:
            if one.tobytes() != other.tobytes():
                apart[name] = relative_difference(one, other)
        else:
            apart[name] = math.inf
    return apart


def relative_difference(one: np.ndarray, other: np.ndarray) -> float:
    """The largest difference of two tensors, relative to the largest element of the first."""
    exact, against = one.astype(np.float64), other.astype(np.float64)
    if not np.array_equal(np.isfinite(exact), np.isfinite(against)):
        return math.inf
    finite = np.isfinite(exact)
    if not finite.any():
        return 0.0
    largest = float(np.abs(exact[finite]).max())
    apart = float(np.abs(exact - against)[finite].max())
    return apart / largest if largest else (math.inf if apart else 0.0)


def check_everything_moved(result: Result) -> None:
    """Fails unless every trained variable is finite and differs from what it was at first."""
    for name, start in result.tensors.items():
        if name.startswith("start"):
            trained = result.tensors[name.replace("start", "trained")]
            assert np.isfinite(trained).all(), name
            assert (trained != start).any(), f"{name} was not trained"


def check_sharded(configuration: Configuration, result: Result) -> None:
    """Fails unless every variable that is large enough, and each slot of it, was sharded."""
    smallest = configuration.min_elements or _DEFAULT_MIN_ELEMENTS
    trained = [t.shape for name, t in result.tensors.items() if name.startswith("start")]
    large = [shape for shape in trained if math.prod(shape) >= smallest]
    each = result.facts["slots_a_weight"]
    report = result.facts["reports"][-1]
    assert report["num_replicas"] == configuration.replicas
    assert report["verdict"] == ("sharded" if len(large) == len(trained) else "partly sharded")
    reported = collections.Counter(tuple(v["shape"]) for v in report["variables"])
    assert reported == collections.Counter(large) and large
    assert {len(v["slots"]) for v in report["variables"]} == {each}
    in_shards = [name for name, shards in result.facts["slots"].items() if shards]
    shapes = collections.Counter(result.tensors[name].shape for name in in_shards)
    assert shapes == collections.Counter(large * each)


def parameters(replicas: int) -> list[Any]:
    """The test parameters of one number of replicas; what the cover leaves out is slow."""
    matrix = full_matrix()
    cover = set(pairwise_cover(matrix))
    return named_cases((one for one in matrix if one.replicas == replicas), cover)


def named_cases(
    configurations: Iterable[Configuration], quick: Container[Configuration]
) -> list[Any]:
    """Test parameters with the configurations' names; those that are not quick are slow."""
    return [
        pytest.param(one, id=one.name, marks=() if one in quick else pytest.mark.slow)
        for one in configurations
    ]


def by_replicas(configurations: Iterable[Configuration], folder: pathlib.Path) -> dict[int, Runs]:
    """Runs that share a process where they have equally many replicas, by that number."""
    found: dict[int, list[Configuration]] = collections.defaultdict(list)
    for configuration in configurations:
        found[configuration.replicas].append(configuration)
    for count in found:
        (folder / str(count)).mkdir()
    return {count: Runs(same, folder / str(count)) for count, same in found.items()}
