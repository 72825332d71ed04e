"""What ops of traced functions get from rounds, and what users are told where these have ended."""

from __future__ import annotations

import re
import threading
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from absl import logging

from tf_wu_shard.dtypes import FLOAT32, INT32, INT64
from tf_wu_shard.errors import WuShardError
from tf_wu_shard.partial_sums.options import PartialSums
from tf_wu_shard.partial_sums.rounds import messages, shared
from tf_wu_shard.partial_sums.rounds.contributions import RoundsEndedError, RoundSum
from tf_wu_shard.partial_sums.rounds.shared import SharedRounds, UpdateAlone, agree
from tf_wu_shard.tensorflow_private import worker_collectives
from tf_wu_shard.tensorflow_private.python_calls import EagerCall
from tf_wu_shard.workers.agreement import Decision, Proposal
from tf_wu_shard.workers.store import StoreError

# These run ops, and devices cannot be divided once TensorFlow has used one.
pytestmark = pytest.mark.usefixtures("logical_cpus")

WORKERS, REPLICAS = 3, 6


class Rounds:
    """This worker's part, without threads: what is asked is noted, and answered as a test says."""

    finish: Callable[..., None] | None = None

    def __init__(self, *arguments: Any) -> None:
        self.max_staleness, self.may_start = arguments[3:5]
        self.asked: list[Any] = []
        self.answer: Any = True
        self.error: Exception | None = None
        self.is_settled, self.is_used = False, True
        self.carried: Sequence[Any] = ()
        self.pending: Sequence[Any] = ()

    def _answer(self, *asked: Any) -> Any:
        self.asked.append(asked)
        if self.error is not None:
            raise self.error
        return self.answer

    def hand_in_rest(self, *, keeps: bool) -> Any:
        return self._answer("keeps" if keeps else "finishes")

    def has_batch(self, own: bool) -> Any:
        return self._answer(own)

    def exchange(self, gradients: Sequence[Any], values: Sequence[Any]) -> Any:
        return self._answer([*map(float, gradients)], [*map(float, values)])

    def new_value(self, nothing: Any) -> int:
        self.asked.append(nothing)
        return 7

    def say(self, number: int, value: Any) -> Any:
        return self._answer(number, value.numpy().tolist())

    def end(self, reason: str) -> None:
        self.asked.append(reason)


class Cluster:
    """The workers: this one is the second, and all say what a test has them say."""

    number, total = 1, WORKERS
    store = has_left = None

    def __init__(self) -> None:
        self.votes: list[tuple[list[str], Proposal]] = []
        self.decision = Decision(True, {0: "agreed"})

    def agree(self, about: Sequence[str], proposal: Proposal, seconds: float) -> Decision:
        self.votes.append(([*about], proposal))
        return self.decision


class Weight:
    """A variable of all workers."""

    distribute_strategy = types.SimpleNamespace(num_replicas_in_sync=REPLICAS)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def weights() -> list[Weight]:
    return [Weight(), Weight()]


@pytest.fixture
def given_up(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Why collectives are given up; none before somebody gives them up."""
    reasons: list[str] = []

    def are_given_up(worker: int) -> str | None:
        return reasons[-1] if reasons else None

    monkeypatch.setattr(worker_collectives, "give_up", reasons.append)
    monkeypatch.setattr(worker_collectives, "are_given_up", are_given_up)
    return reasons


@pytest.fixture
def own(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster, weights: list[Weight], given_up: list[str]
) -> SharedRounds:
    """Rounds of one gradient, the list of a sparse one, and a loss."""
    monkeypatch.setattr(shared, "Rounds", Rounds)
    monkeypatch.setattr(shared, "GroupOfWorkers", lambda strategy, name: None)
    return made(cluster, weights, [((), FLOAT32)])


def made(cluster: Any, weights: Any, others: Any, **options: Any) -> SharedRounds:
    dense, lists = [((4,), FLOAT32)], [((None,), INT32)]
    asked = PartialSums(**options)
    return SharedRounds("name", cluster, weights, asked, dense, lists, others)


def rounds(own: SharedRounds) -> Any:
    return own.rounds


def called(call: EagerCall, *operands: Any) -> list[Any]:
    """What an op of a traced function gets."""
    types_ = [tf.as_dtype(one) for one in call.types]

    @tf.function(autograph=False)
    def function() -> Any:
        return tf.raw_ops.EagerPyFunc(
            input=[*map(tf.constant, operands)], token=call.token, Tout=types_, is_async=False
        )

    return [one.numpy().tolist() for one in function()]


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(logging, "warning", lines.append)
    return lines


def test_rounds_are_as_late_and_started_as_the_user_asked(
    own: SharedRounds, cluster: Cluster, weights: list[Weight]
) -> None:
    assert own.kinds == [((4,), FLOAT32), ((None,), INT32)]
    solo = rounds(made(cluster, weights, [], mode="solo", max_staleness=5))
    assert solo.max_staleness == 5 and all(map(solo.may_start, range(50)))
    drawn = [
        [*map(rounds(made(cluster, weights, [], seed=seed)).may_start, range(50))]
        for seed in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]


def test_each_has_a_group_of_one_of_its_own(
    own: SharedRounds, cluster: Cluster, weights: list[Weight]
) -> None:
    assert own.group_of_one != made(cluster, weights, []).group_of_one


def test_variables_are_known_as_long_as_they_are_there(
    own: SharedRounds, weights: list[Weight]
) -> None:
    other = Weight()
    assert own.trains(weights[1:]) and own.trains([other, weights[0]])
    assert not own.trains([other]) and not own.trains([])
    weights.clear()
    assert not own.trains([other, None])


def test_nothing_is_handed_in_where_nothing_is_late(own: SharedRounds) -> None:
    rounds(own).is_settled, rounds(own).is_used = True, False
    own.flush()
    own.settle()
    assert rounds(own).asked == []


def test_a_flush_lets_the_update_take_what_is_late_and_a_checkpoint_the_next_step(
    own: SharedRounds, logged: list[str]
) -> None:
    own.flush()
    own.settle()
    assert rounds(own).asked == [("finishes",), ("keeps",)]
    assert logged == []


def test_what_cannot_be_put_into_weights_is_told(own: SharedRounds, logged: list[str]) -> None:
    rounds(own).carried = [1.0]
    own.settle()
    assert logged == []
    own.flush()
    assert logged == [messages.IS_LEFT]


@pytest.mark.parametrize("hands_in", [SharedRounds.flush, SharedRounds.settle])
def test_who_hands_in_while_another_goes_on_is_told(
    own: SharedRounds, hands_in: Callable[[SharedRounds], None]
) -> None:
    rounds(own).answer = False
    with pytest.raises(WuShardError, match="do it on all workers, after as many steps on each"):
        hands_in(own)


@pytest.mark.parametrize("error", [RoundsEndedError("it was told to"), StoreError("it was lost")])
def test_who_cannot_hand_in_is_told_why(
    own: SharedRounds, given_up: list[str], error: Exception
) -> None:
    rounds(own).error = error
    with pytest.raises(WuShardError, match=f"cannot be handed in by all workers.*: {error}"):
        own.flush()
    given_up.append("worker 2 is gone")
    with pytest.raises(tf.errors.UnavailableError, match=r"in by all .*: worker 2 is gone"):
        own.flush()


def test_who_waits_for_others_is_told_after_a_while(
    own: SharedRounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    timers: list[Any] = []

    class Timer:
        """A clock that stands still."""

        def __init__(self, seconds: float, tell: Callable[..., None], words: list[str]) -> None:
            self.done = [*words]
            timers.append(self)

        def start(self) -> None:
            self.done.append("started")

        def cancel(self) -> None:
            self.done.append("cancelled")

    monkeypatch.setattr(threading, "Timer", Timer)
    own.flush()
    rounds(own).error = RoundsEndedError("over")
    with pytest.raises(WuShardError):
        own.flush()
    done = [messages.WAITS_FOR_OTHERS, "started", "cancelled"]
    assert [timer.done for timer in timers] == [done, done]
    assert all(timer.daemon for timer in timers)


def test_a_step_gets_the_sums_of_gradients_and_then_those_of_other_values(
    own: SharedRounds,
) -> None:
    sums = [tf.constant(3.0), tf.constant([4, 5])]
    rounds(own).answer = RoundSum(sums, [tf.constant(6.0)], [], [])
    call = own.exchange(UpdateAlone())
    assert call.types == (FLOAT32, INT32, FLOAT32)
    assert called(call, 1.0, 2, 9.0) == [3.0, [4, 5], 6.0]
    assert rounds(own).asked == [([1.0, 2.0], [9.0])]


def test_what_is_late_goes_into_the_update_of_the_step_that_ran_last(own: SharedRounds) -> None:
    updates = [UpdateAlone(), UpdateAlone()]
    first, second = map(own.exchange, updates)
    sums = [tf.constant(3.0), tf.constant(4)]
    rounds(own).answer = RoundSum(sums, [tf.constant(6.0)], [], [])
    # The update of a trace is known only after its op.
    updates[0].update = lambda gradients: None
    found = []
    for call in (first, second, first):
        called(call, 1.0, 2, 9.0)
        found.append(rounds(own).finish)
    assert found == [updates[0].update, None, updates[0].update]


def test_each_trace_has_a_token(own: SharedRounds) -> None:
    assert own.tokens == set()
    calls = [own.exchange(UpdateAlone()) for _ in range(2)]
    assert own.tokens == {one.token for one in calls} and len(own.tokens) == 2


@pytest.mark.parametrize(
    ("error", "reasons"), [(RoundsEndedError("over"), []), (StoreError("lost"), ["lost"])]
)
def test_where_no_sum_comes_a_step_goes_on_to_an_error_of_tensorflows(
    own: SharedRounds, given_up: list[str], error: Exception, reasons: list[str]
) -> None:
    rounds(own).error = error
    assert called(own.exchange(UpdateAlone()), 1.0, 2, 9.0) == [1.0, 2, 9.0]
    assert given_up == reasons


def test_a_value_counts_as_that_of_all_workers_before_any_sum_of_it(own: SharedRounds) -> None:
    call = own.said("loss", (2,), FLOAT32)
    rounds(own).answer = None
    assert called(call, [1.0, 2.0]) == [[1.0 * WORKERS, 2.0 * WORKERS]]
    rounds(own).answer = tf.constant([5.0, 6.0])
    assert called(call, [3.0, 4.0]) == [[5.0, 6.0]]
    zero, *asked = rounds(own).asked
    assert (zero.shape, zero.dtype) == ((2,), tf.float32) and not np.any(zero)
    assert asked == [(7, [1.0, 2.0]), (7, [3.0, 4.0])]


def test_of_a_value_all_workers_agree_on_its_shape_and_type_once(
    own: SharedRounds, cluster: Cluster
) -> None:
    first = own.said("loss", [2], FLOAT32)
    assert own.said("loss", (2,), FLOAT32) is first
    assert own.said("other", (2,), INT64) is not first
    assert [about for about, _ in cluster.votes] == [
        ["partial sums", "loss"],
        ["partial sums", "other"],
    ]
    plans = [proposal.subject["plan"] for _, proposal in cluster.votes]
    assert plans == [repr(((2,), FLOAT32)), repr(((2,), INT64))]


@pytest.mark.parametrize(("own_batches", "answer"), [([1, 0], True), ([0, 0], False)])
def test_where_any_worker_has_a_batch_all_replicas_count_as_having_one(
    own: SharedRounds, own_batches: list[int], answer: bool
) -> None:
    rounds(own).answer = answer
    call = own.has_batch(INT64)
    assert own.has_batch(INT64) is call is not own.has_batch(INT32)
    assert called(call, np.array(own_batches, np.int64)) == [[REPLICAS * answer] * 2]
    assert rounds(own).asked == [(any(own_batches),)]


@pytest.mark.parametrize("error", [RoundsEndedError("over"), StoreError("lost")])
def test_where_nobody_says_any_more_the_next_step_is_taken_and_fails(
    own: SharedRounds, error: Exception
) -> None:
    rounds(own).error = error
    assert called(own.has_batch(INT32), np.int32(0)) == [REPLICAS]


def test_values_of_one_shape_in_all_steps_may_be_summed(
    cluster: Cluster, weights: list[Weight], own: SharedRounds
) -> None:
    several = made(cluster, weights, [((2,), FLOAT32), (None, FLOAT32)])
    several.check_shapes([((2,), FLOAT32), ((3,), FLOAT32)])
    several.check_shapes([(None, FLOAT32), (None, FLOAT32)])


@pytest.mark.parametrize("dims", [(3,), (2, 1), (None,)])
def test_values_of_another_shape_from_step_to_step_may_not(
    cluster: Cluster, weights: list[Weight], own: SharedRounds, dims: Any
) -> None:
    several = made(cluster, weights, [((2,), FLOAT32)])
    said = f"another shape from step to step, (2,) and {dims}: of a worker"
    with pytest.raises(WuShardError, match=re.escape(said)):
        several.check_shapes([(dims, FLOAT32)])


def test_a_value_of_an_open_shape_in_every_trace_may_not_either(
    cluster: Cluster, weights: list[Weight], own: SharedRounds
) -> None:
    several = made(cluster, weights, [((None,), FLOAT32)])
    with pytest.raises(WuShardError, match="another shape from step to step"):
        several.check_shapes([((None,), FLOAT32)])


@pytest.mark.parametrize(
    ("pending", "carried", "is_told"), [((), (), False), ([1], (), True), ((), [1], True)]
)
def test_a_program_that_ends_is_told_of_gradients_that_are_lost(
    own: SharedRounds, logged: list[str], pending: Any, carried: Any, is_told: bool
) -> None:
    rounds(own).pending, rounds(own).carried = pending, carried
    shared._end(weakref.ref(own))
    assert logged == [messages.IS_LOST] * is_told
    assert rounds(own).asked == ["the program ends"]


def test_rounds_that_are_gone_end_in_silence(
    cluster: Cluster, weights: list[Weight], own: SharedRounds, logged: list[str]
) -> None:
    gone = weakref.ref(made(cluster, weights, []))
    shared._end(gone)
    assert gone() is None and logged == []


def test_workers_agree_on_plan_options_and_version(cluster: Any) -> None:
    agree(cluster, ["weight", "bias"], "digest", "options")
    ((about, proposal),) = cluster.votes
    assert about == ["partial sums", "weight", "bias"]
    assert proposal.subject.keys() == {"version", "options", "plan"}
    assert (proposal.subject["plan"], proposal.subject["options"]) == ("digest", "options")


def test_where_they_do_not_agree_it_is_said_who_wants_what(cluster: Any) -> None:
    cluster.decision = Decision(False, {0: "agreed", 1: "wants another"})
    said = "not all workers sum the same in rounds: worker 0 agreed; worker 1 wants another; set"
    with pytest.raises(WuShardError, match=said):
        agree(cluster, ["weight"], "digest")
