"""On workers each is late by itself, and all of them have the same weights after every step."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

from tests.partial_sums.late_training import by_numpy, random_lateness
from tests.workers.processes import launch
from tf_wu_shard.partial_sums.options import FLAG


@pytest.mark.parametrize("mode", ["sharded", pytest.param("unsharded", marks=pytest.mark.slow)])
def test_random_lateness_is_as_in_numpy(mode: str, tmp_path: pathlib.Path) -> None:
    gradients, late = random_lateness(2)
    weight, waiting = by_numpy(gradients, late)
    asked = [mode, str(tmp_path / "held")]
    for worker in launch("tests.partial_sums.workers_run", asked, workers=2, seconds=120):
        found = worker.answer
        held = [np.frombuffer(bytes.fromhex(one), np.float32) for one in found["held"]]
        np.testing.assert_array_equal(held[0], weight.ravel())
        np.testing.assert_array_equal(held[1], waiting[found["rank"]].ravel())
        # A worker counts its own gradients.
        in_time = 100 * np.mean(late[:, found["rank"]] == 0)
        assert (
            f"{in_time:.1f} % of them were in time in {len(late)} steps" in found["changes"][FLAG]
        )
        assert "no checkpoint can hold them" in found["checkpoint"]
        assert found["verdict"] == ("sharded" if mode == "sharded" else "nothing sharded")
