"""All functions that train the same weights in the same way share rounds, as long as these live."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import tensorflow as tf  # noqa: F401  sets the package up
from absl import logging

from tf_wu_shard.dtypes import FLOAT32, FLOAT64
from tf_wu_shard.errors import WuShardError
from tf_wu_shard.partial_sums.options import PartialSums
from tf_wu_shard.partial_sums.rounds import messages, registry
from tf_wu_shard.partial_sums.rounds.record import Part
from tf_wu_shard.partial_sums.rounds.record import Record as RoundRecord


class Weight:
    """A variable."""


class Rounds:
    """One worker's part."""

    def __init__(self) -> None:
        self.record = RoundRecord(2)
        self.finish: Callable[..., None] | None = lambda sums: None
        self.ended: list[str] = []
        self.is_settled = False
        self.num_steps = 0

    def end(self, reason: str) -> None:
        self.ended.append(reason)


class Shared:
    """What the registry makes, once all workers have agreed."""

    def __init__(self, name: str, cluster: Any, weights: Sequence[Any], *more: Any) -> None:
        self.name = name
        self.rounds = Rounds()
        self.checked: list[Any] = []
        self.flushed = 0
        # Known by number: whoever keeps them would keep them alive.
        self._weights = {id(one) for one in weights}

    def trains(self, variables: Sequence[Any]) -> bool:
        return not self._weights.isdisjoint(map(id, variables))

    def check_shapes(self, others: Sequence[Any]) -> None:
        self.checked.append(others)

    def flush(self) -> None:
        self.flushed += 1


@pytest.fixture(autouse=True)
def agreed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], str, str]]:
    """What workers agreed on; nothing is begun before a test."""
    found: list[tuple[list[str], str, str]] = []

    def agree(cluster: Any, about: Sequence[str], plan: str, options: str) -> None:
        if cluster == "others want something else":
            raise WuShardError(cluster)
        found.append(([*about], plan, options))

    monkeypatch.setattr(registry, "_shared", {})
    monkeypatch.setattr(registry, "SharedRounds", Shared)
    monkeypatch.setattr(registry, "agree", agree)
    registry._eager_batches.clear()
    return found


@pytest.fixture(autouse=True)
def hooks(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """What is to be told of the ends of epochs, of saves and of batches."""
    found: dict[str, list[Any]] = {}
    for name in ("before_epochs_end", "before_saves", "before_eager_batches"):
        monkeypatch.setattr(registry, name, found.setdefault(name, []).append)
    return found


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(logging, "log_first_n", lambda level, text, count: lines.append(text))
    return lines


@pytest.fixture
def weights() -> list[Weight]:
    return [Weight(), Weight()]


SCALAR = ((), FLOAT32)


def rounds_of(weights: Sequence[Any], **changed: Any) -> Any:
    """The rounds of some weights, one thing or another of them changed."""
    asked: dict[str, Any] = {
        "cluster": "all want the same",
        "names": ["kernel", "bias"],
        "options": PartialSums(),
        "dense": [((4,), FLOAT32)],
        "lists": [],
        "others": [SCALAR],
        "places": (["kernel", "bias"], 0),
    }
    asked |= changed
    return registry.rounds_of(
        asked["cluster"],
        weights,
        asked["names"],
        asked["options"],
        asked["dense"],
        asked["lists"],
        asked["others"],
        asked["places"],
    )


def test_before_any_step_there_are_no_rounds() -> None:
    assert registry.begun_rounds() == []
    registry.flush_partial_sums()
    with pytest.raises(WuShardError, match="no step of this process is summed in rounds"):
        registry.last_record()


def test_every_trace_of_a_step_has_the_same_rounds_and_workers_agree_once(
    weights: list[Weight], agreed: list[Any]
) -> None:
    first = rounds_of(weights)
    # Another trace knows less of a shape, and lists the names in another order.
    again = rounds_of(weights, names=["bias", "kernel"], dense=[((None,), FLOAT32)])
    assert first is again and registry.begun_rounds() == [first]
    assert agreed == [(["bias", "kernel"], first.name, repr(PartialSums()))]
    assert first.checked == [[SCALAR], [SCALAR]]


@pytest.mark.parametrize(
    "changed",
    [
        {"names": ["kernel", "other"]},
        {"options": PartialSums(mode="solo")},
        {"dense": [((4,), FLOAT64)]},
        {"dense": [((4,), FLOAT32)] * 2},
        {"dense": [], "lists": [((4,), FLOAT32)]},
        {"others": [SCALAR, SCALAR]},
        {"places": (["bias", "kernel"], 0)},
    ],
    ids=lambda one: " ".join(one),
)
def test_what_is_trained_in_another_way_has_rounds_of_its_own(
    weights: list[Weight], logged: list[str], changed: dict[str, Any]
) -> None:
    first = rounds_of(weights)
    assert logged == []
    second = rounds_of(weights, **changed)
    assert registry.begun_rounds() == [first, second] and first.name != second.name
    assert logged == [messages.OTHER_ROUNDS]


def test_other_weights_have_rounds_of_their_own_and_nobody_is_warned(
    weights: list[Weight], logged: list[str]
) -> None:
    rounds_of(weights)
    others = [Weight()]
    rounds_of(others, names=["other"])
    assert len(registry.begun_rounds()) == 2 and logged == []


def test_where_workers_do_not_agree_nothing_is_begun(weights: list[Weight]) -> None:
    with pytest.raises(WuShardError, match="others want something else"):
        rounds_of(weights, cluster="others want something else")
    assert registry.begun_rounds() == []
    assert rounds_of(weights) is not None


def test_rounds_end_with_the_first_weight(weights: list[Weight]) -> None:
    first, others = rounds_of(weights), [Weight()]
    second = rounds_of(others, names=["other"])
    del weights[0]
    gc.collect()
    assert registry.begun_rounds() == [second]
    assert first.rounds.ended == ["the weights are gone"] and first.rounds.finish is None
    assert second.rounds.ended == []


def test_a_flush_is_of_all_rounds(weights: list[Weight]) -> None:
    others = [Weight()]
    begun = rounds_of(weights), rounds_of(others, names=["other"])
    registry.flush_partial_sums()
    assert [one.flushed for one in begun] == [1, 1]


def test_the_end_of_an_epoch_and_a_save_flush_the_rounds_of_that_model(
    weights: list[Weight], hooks: dict[str, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [Weight()]
    own, other = rounds_of(weights), rounds_of(others, names=["other"])
    monkeypatch.setattr(registry, "variables_in", lambda model: {"own": weights[1:]}[model])
    for name in ("before_epochs_end", "before_saves"):
        # Told of each rounds, though wrapped once.
        assert len(hooks[name]) == 2
        hooks[name][0]("own")
    assert (own.flushed, other.flushed) == (2, 0)


def test_a_model_is_not_looked_at_where_nothing_is_late(
    weights: list[Weight], hooks: dict[str, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = rounds_of(weights)
    own.rounds.is_settled = True
    looked_at: list[Any] = []
    monkeypatch.setattr(registry, "variables_in", looked_at.append)
    hooks["before_saves"][0]("model")
    assert looked_at == [] and own.flushed == 0


def batches(own: Any, notice: Callable[[], None], *steps: int) -> None:
    """Takes a batch outside of functions after each number of steps."""
    for number in steps:
        own.rounds.num_steps = number
        notice()


@pytest.mark.parametrize("before", [(0, 1, 2), (0, 0, 0, 1, 2)])
def test_who_takes_a_batch_for_every_step_outside_is_told(
    weights: list[Weight], hooks: dict[str, list[Any]], logged: list[str], before: tuple[int, ...]
) -> None:
    own, (notice,) = rounds_of(weights), hooks["before_eager_batches"]
    batches(own, notice, *before)
    assert logged == []
    batches(own, notice, 3)
    assert logged == [messages.WAITS_FOR_BATCHES]


@pytest.mark.parametrize("steps", [(0, 0, 0, 0, 0, 0), (0, 1, 2, 2, 3, 4), (5, 5, 6, 7)])
def test_batches_without_a_step_between_them_tell_nothing(
    weights: list[Weight], hooks: dict[str, list[Any]], logged: list[str], steps: tuple[int, ...]
) -> None:
    own, (notice,) = rounds_of(weights), hooks["before_eager_batches"]
    batches(own, notice, *steps)
    assert logged == []


def test_the_last_record_is_of_the_rounds_that_were_begun_last(weights: list[Weight]) -> None:
    rounds_of(weights)
    others = [Weight()]
    last = rounds_of(others, names=["other"])
    rounds_of(weights)
    last.rounds.record.add([Part(True, 1, 0, False, False)] * 2)
    assert registry.last_record() is last.rounds.record
    assert registry.last_record().rounds == 1
