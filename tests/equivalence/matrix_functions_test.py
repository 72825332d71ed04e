"""Updates with matrix functions train the same under a TPUStrategy, weights and slots in shards."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

import keras
import pytest
import tensorflow as tf

from tests.equivalence.matrix_functions_run import CASES
from tests.equivalence.matrix_optimizers import ClippedMuon
from tests.equivalence.own_process import answer_of
from tests.equivalence.reordered import FLOOR, Training, check_against_reordered
from tests.selection import cases, selected

k = keras.optimizers

GROUNDS: dict[str, tuple[int, str | None]] = {
    "2 replicas": (2, None),
    "4 replicas": (4, None),
    "2x4 torus": (8, "v5e:2x4"),
}

# Norms over all shards are summed in another order than unsharded ones, and so are gradients along
# one axis of a torus after the other. A matrix function multiplies what differs by the inverse of
# its smallest values, so how much that may change is measured, as in reordered.py.
NORMS = {"Muon, clipped after", "Muon of unit norms"}


def rounds(ground: str, case: str) -> bool:
    """Whether sharding sums in another order there."""
    return case in NORMS or "torus" in ground


# What every run of the tests takes, on each ground.
QUICK = {
    *(("2 replicas", case) for case in ("Muon, accumulating", "Shampoo of any order")),
    *(("4 replicas", case) for case in ("Shampoo, interrupted", "outside values of their own")),
}


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest) -> Callable[[str], dict[str, Any]]:
    """What came of a ground's cases that are asked about, all trained by one process."""

    @functools.cache
    def of(ground: str) -> dict[str, Any]:
        replicas, topology = GROUNDS[ground]
        asked = selected(request, "case", ground=ground)
        job = {
            "replicas": replicas,
            "topology": topology,
            "cases": asked,
            "reordered": [case for case in asked if rounds(ground, case)],
        }
        results: dict[str, Any] = answer_of("matrix_functions_run", json.dumps(job))
        return results

    return of


EVERYWHERE = cases(((ground, case) for ground in GROUNDS for case in CASES), QUICK)


@pytest.mark.parametrize(("ground", "case"), EVERYWHERE)
def test_weights_and_slots_are_as_unsharded_ones(
    found: Callable[[str], dict[str, Any]], ground: str, case: str
) -> None:
    outcome = found(ground)[case]
    apart = max(outcome["apart"])
    moved = max(outcome["moved"])
    print(f"reordered {moved:.2e}, sharded {apart:.2e}")
    assert apart <= (max(FLOOR, 4 * moved) if rounds(ground, case) else 0.0)
    check_whole(case, outcome)


def check_whole(case: str, outcome: dict[str, Any]) -> None:
    """Equal matrices take turns, lone ones are whole on every replica."""
    turns = "by turns, 1 of 2 on each replica"
    if case == "Muon of wide rows":
        wide = {"(24, 512)": "on every replica", "(512, 16)": turns, "(16, 512)": turns}
        assert outcome["whole"] == wide
        assert outcome["emitted"]["all_to_all"] == 4
        return
    assert outcome["left"] == {} and outcome["not_in_shards"] == []
    if case == "Shampoo of any order":
        # Roots of sides that are as long take turns, whatever the rest of their kernels is.
        assert all("by turns" in whole for whole in outcome["whole"].values())
        return
    lone = dict.fromkeys(["(24, 64)", "(64, 40)"], "on every replica")
    assert outcome["whole"] == lone | {"(64, 64)": turns}
    # Of Shampoo the gradient, there once; two statistics back, there as they are kept; the step.
    assert outcome["emitted"]["all_to_all"] == (6 if case.startswith("Shampoo") else 2)


ROUNDING: dict[str, Callable[[], keras.optimizers.Optimizer]] = {
    "Muon": lambda: k.Muon(0.01),
    "Muon, clipped after": lambda: ClippedMuon(0.01),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "topology"),
    [
        ("Muon, clipped after", None),
        ("Muon", None),
        ("Muon", "v5e:2x4"),
    ],
)
def test_other_orders_of_sums_move_the_unsharded_training_as_far(
    emulated: Callable[..., tf.distribute.TPUStrategy], case: str, topology: str | None
) -> None:
    strategy = emulated(4) if topology is None else emulated(8, topology)
    report = check_against_reordered(strategy, Training(ROUNDING[case]), vectors=False)
    assert {v.whole for v in report.variables} == {"on every replica"}
