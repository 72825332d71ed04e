"""Emulated replicas learn what a single device and MirroredStrategy's replicas learn.

Each of the three trains everything in a process of its own. Where a feature means the same on one
device it is held against one device; where replicas matter, or both do, against MirroredStrategy.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping

import numpy as np
import pytest

from tests.emulation.features import FEATURES
from tests.project.imports import ROOT
from tests.selection import cases, selected

# MirroredStrategy cannot exchange in a conditional, which these do, nor compile an exchange.
ALONE = ("accumulation", "moving_average", "steps_per_execution", "compiled")

# One device computes something else: a mean of all examples and not of the replicas' means, norms
# of the whole gradient, statistics and random numbers of the whole batch, other roundings.
REPLICAS_MATTER = (
    *("partial_batch", "momentum_clip_norm", "adamw_schedule_clip_global_norm"),
    *("batch_norm_dropout", "bfloat16"),
)

# A TPU densifies sparse gradients to sum them, and Adam then moves rows that nobody looked up. So
# does one device whose gradients are dense.
EMBEDDINGS = ("embedding", "dense_embedding")

SINGLE = [name for name in FEATURES if name not in (*REPLICAS_MATTER, "embedding")]
MIRRORED = [name for name in FEATURES if name not in (*ALONE, "embedding")]

# What each process trains, by the number of replicas. MirroredStrategy bears one number in each.
JOBS: dict[str, tuple[str, dict[int, list[str]]]] = {
    "single": ("single", {1: SINGLE}),
    "mirrored": ("mirrored", {4: MIRRORED}),
    "eight mirrored": ("mirrored", {8: ["adam"]}),
    "emulated": ("emulated", {4: list(FEATURES), 8: ["adam"]}),
}

# The others are trained by `make test-all` alone: what they add to these is tested in shards, too.
QUICK = frozenset({"partial_batch", "accumulation", "embedding"})

# Nothing but the order of sums differs, and that by an ulp of a sum of gradients. Weights, losses
# and logits are about 1, where an ulp is 1.2e-7. With more replicas the orders differ more.
TOLERANCE = {4: 4e-7, 8: 1e-6}

# Batch statistics pass the differences on through a division by a small deviation.
NORMALIZED_TOLERANCE = 4e-6

Tensors = Mapping[str, np.ndarray]


@pytest.fixture(scope="module")
def folders(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, pathlib.Path]:
    """Where each kind of strategy left what it trained, of what the selected tests are about."""
    wanted = set(selected(request, "feature"))
    wanted |= {EMBEDDINGS[1]} if "embedding" in wanted else set()
    made = {}
    for name, (kind, listed) in JOBS.items():
        made[name] = tmp_path_factory.mktemp(kind)
        chosen = {n: [f for f in names if f in wanted] for n, names in listed.items()}
        features = {n: names for n, names in chosen.items() if names}
        if not features:
            continue
        job = {"kind": kind, "features": features, "folder": str(made[name])}
        done = subprocess.run(
            [
                *(sys.executable, "-m", "tests.emulation.training_run"),
                json.dumps(job),
            ],
            cwd=ROOT,
            env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
    return made


def trained(folder: pathlib.Path, feature: str, replicas: int) -> Tensors:
    file = folder / f"{feature}-{replicas}.npz"
    assert file.exists(), file.with_suffix(".txt").read_text()
    with np.load(file) as tensors:
        return dict(tensors)


def largest_difference(one: Tensors, other: Tensors) -> float:
    """Of any element of any tensor; both have the same ones, none empty, all finite."""
    assert one.keys() == other.keys()
    assert all(np.isfinite(one[key]).all() and one[key].size for key in one)
    return max(float(np.abs(one[key].astype(np.float64) - other[key]).max()) for key in one)


def tolerance(feature: str, replicas: int = 4) -> float:
    return NORMALIZED_TOLERANCE if "batch_norm" in feature else TOLERANCE[replicas]


@pytest.mark.parametrize("feature", cases(SINGLE, QUICK))
def test_replicas_learn_what_one_device_learns(
    folders: dict[str, pathlib.Path], feature: str
) -> None:
    single = trained(folders["single"], feature, 1)
    emulated = trained(folders["emulated"], feature, 4)
    assert largest_difference(single, emulated) <= tolerance(feature)


@pytest.mark.parametrize("feature", cases(MIRRORED, QUICK))
def test_replicas_learn_what_mirrored_ones_learn(
    folders: dict[str, pathlib.Path], feature: str
) -> None:
    mirrored = trained(folders["mirrored"], feature, 4)
    emulated = trained(folders["emulated"], feature, 4)
    assert largest_difference(mirrored, emulated) <= tolerance(feature)


@pytest.mark.parametrize("feature", cases(["adam"], QUICK))
def test_eight_replicas_learn_what_eight_mirrored_ones_learn(
    folders: dict[str, pathlib.Path], feature: str
) -> None:
    mirrored = trained(folders["eight mirrored"], feature, 8)
    emulated = trained(folders["emulated"], feature, 8)
    assert largest_difference(mirrored, emulated) <= tolerance(feature, 8)


@pytest.mark.parametrize("feature", cases(EMBEDDINGS[:1], QUICK))
def test_sparse_gradients_are_densified_as_on_a_tpu(
    folders: dict[str, pathlib.Path], feature: str
) -> None:
    sparse, dense = (trained(folders["emulated"], name, 4) for name in (feature, EMBEDDINGS[1]))
    assert largest_difference(sparse, dense) <= tolerance(feature)
