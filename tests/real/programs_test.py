"""Programs as people write them train as they do unsharded, with their updates in shards."""

from __future__ import annotations

import functools

import pytest

from tests.real.corpus import programs
from tests.real.outcome import Outcome
from tests.real.processes import outcomes
from tests.real.program import GROUNDS, MIRRORED, TPU, WORKERS

# Of the elements of weights that are not below min_elements.
SHARED = 0.95

# On each ground a program has at least so many elements to share.
ELEMENTS = 10_000

# On 4 replicas sums may be taken in another order: some roundings of float32, 6e-8 each, in each of
# a few steps. It is the floor of tests/equivalence/reordered.py.
REORDERED = 2e-6

# One of each kind that was left whole before: a gradient of no static shape, tied weights in a
# model of one's own, a table sliced by shape, a loop over finite data, an older Keras.
SAMPLE = {
    MIRRORED: ("last_batch_of_one", "gpt_by_reshapes", "epoch_in_function", "keras_two_dense"),
    TPU: ("last_batch_of_one",),
    # Workers cost a launch.
    WORKERS: (),
}

_PROGRAMS = programs()

CASES = [
    pytest.param(
        ground,
        name,
        marks=() if name in SAMPLE[ground] else pytest.mark.slow,
        id=f"{ground}-{name}",
    )
    for ground in GROUNDS
    for name, program in _PROGRAMS.items()
    if ground not in program.refused
]


@pytest.fixture(scope="module")
def outcome_of(request: pytest.FixtureRequest) -> functools.partial[Outcome]:
    """A function from a ground and a program to its outcome; all that are selected run at once."""
    selected: dict[str, dict[str, None]] = {ground: {} for ground in GROUNDS}
    for item in request.session.items:
        if isinstance(item, pytest.Function) and item.module is request.module:
            own = item.callspec.params
            selected[str(own["ground"])][str(own["name"])] = None
    found: dict[str, dict[str, Outcome]] = {}

    def outcome(ground: str, name: str) -> Outcome:
        if ground not in found:
            found[ground] = outcomes(ground, list(selected[ground]))
        return found[ground][name]

    return functools.partial(outcome)


@pytest.mark.parametrize(("ground", "name"), CASES)
def test_a_program_trains_in_shards_as_it_does_unsharded(
    ground: str, name: str, outcome_of: functools.partial[Outcome]
) -> None:
    outcome, program = outcome_of(ground, name), _PROGRAMS[name]
    assert not outcome.unsharded and not outcome.error
    assert outcome.finite
    assert outcome.elements >= ELEMENTS
    allowed = max(program.near, REORDERED if ground == TPU else 0.0)
    assert outcome.farthest <= allowed, outcome.apart
    if not program.alone:
        assert outcome.share >= SHARED, outcome.reasons
