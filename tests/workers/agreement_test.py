"""All workers agree or none does, whoever is late, dead, unwilling or damaged."""

from __future__ import annotations

import threading
import time
from functools import partial

import pytest

from tests.workers.local_store import LocalStore
from tests.workers.threads import FailingStore, together
from tf_wu_shard.workers.agreement import Decision, Proposal, Voter
from tf_wu_shard.workers.store import Store, StoreError

_SAME = Proposal({"version": "1.0", "plan": "ab12"})
_UNWILLING = Proposal({"version": "1.0", "plan": "ab12"}, "its slot is on a GPU")


def _vote(
    store: Store, proposals: dict[int, Proposal], total: int, seconds: float = 5.0
) -> list[Decision]:
    """The decisions that the workers get who propose something."""
    voters = {worker: Voter(store, worker, total, seconds, 0.1) for worker in proposals}
    return together([partial(voters[w].vote, "f", proposals[w]) for w in proposals])


@pytest.mark.parametrize("total", [1, 2, 5])
def test_workers_that_propose_the_same_agree(total: int) -> None:
    decisions = _vote(LocalStore(), dict.fromkeys(range(total), _SAME), total)
    assert decisions == [Decision(True, dict.fromkeys(range(total), "agreed"))] * total


def test_a_differing_part_is_named_with_each_workers_value() -> None:
    other = Proposal({"version": "1.0", "plan": "cd34"})
    older = Proposal({"version": "1.0"})
    decisions = _vote(LocalStore(), {0: _SAME, 1: other, 2: older}, 3)
    reasons = {0: "proposed plan 'ab12'", 1: "proposed plan 'cd34'", 2: "proposed no plan"}
    assert decisions == [Decision(False, reasons, differing=("plan",))] * 3
    assert decisions[0].summary == (
        "worker 0 proposed plan 'ab12'; worker 1 proposed plan 'cd34'; worker 2 proposed no plan"
    )


@pytest.mark.parametrize("unwilling", [0, 1, 2])
def test_one_refusal_is_everybodys_with_all_reasons(unwilling: int) -> None:
    started = time.monotonic()
    proposals = {w: _UNWILLING if w == unwilling else _SAME for w in range(3)}
    decisions = _vote(LocalStore(), proposals, 3)
    reasons = dict.fromkeys(range(3), "agreed") | {unwilling: "refused: its slot is on a GPU"}
    assert decisions == [Decision(False, reasons)] * 3
    # The patience is five seconds; nobody waits for it.
    assert time.monotonic() - started < 3


@pytest.mark.parametrize("unwilling", [0, 2])
def test_a_refusal_does_not_wait_for_a_worker_that_is_missing(unwilling: int) -> None:
    started = time.monotonic()
    proposals = {w: _UNWILLING if w == unwilling else _SAME for w in (0, 2)}
    first, second = _vote(LocalStore(), proposals, 3)
    assert first == second and not first.agreed
    assert first.reasons[unwilling] == "refused: its slot is on a GPU"
    assert "has not answered within 0.1" in first.reasons[1]
    assert time.monotonic() - started < 3


def test_a_late_worker_reads_the_same_decision() -> None:
    store = LocalStore()
    decisions = _vote(store, {0: _SAME, 1: _SAME}, 3, seconds=0.1)
    (late,) = _vote(store, {2: _SAME}, 3, seconds=0.1)
    assert decisions == [late, late] and not late.agreed
    assert late.reasons[0] == late.reasons[1] == "agreed"
    assert late.reasons[2].startswith("has not answered within 0.1")


def test_a_worker_that_is_late_but_in_time_is_waited_for() -> None:
    store = LocalStore()
    early = threading.Thread(target=_vote, args=(store, {0: _SAME, 2: _SAME}, 3))
    early.start()
    time.sleep(0.1)
    (late,) = _vote(store, {1: _SAME}, 3)
    early.join()
    assert late.agreed


def test_a_dead_arbiter_hangs_nobody() -> None:
    decisions = _vote(LocalStore(), {1: _SAME, 2: _SAME}, 3, seconds=0.1)
    assert decisions[0] == decisions[1] and not decisions[0].agreed
    assert decisions[0].reasons[0].startswith("has not answered within")
    assert decisions[0].reasons[1] == "agreed"


def test_an_arbiter_that_proposes_and_dies_hangs_nobody() -> None:
    store = LocalStore()
    _vote(store, {0: _SAME}, 1, seconds=0.1)
    store.remove("f/decision")
    (decision,) = _vote(store, {1: _SAME}, 2, seconds=0.1)
    reasons = {0: "proposed, but has decided nothing within 0.125 seconds", 1: "agreed"}
    assert decision == Decision(False, reasons, silent=(0,))


def test_an_arbiter_that_comes_after_all_lost_patience_follows_them() -> None:
    store = LocalStore()
    decisions = _vote(store, {1: _SAME, 2: _SAME}, 3, seconds=0.05)
    (arbiter,) = _vote(store, {0: _SAME}, 3, seconds=0.05)
    assert decisions == [arbiter, arbiter] and not arbiter.agreed


@pytest.mark.parametrize("text", ["{", '{"format": 9}', '{"format": 1, "subject": {"a": 1}}'])
def test_a_damaged_proposal_is_a_negative_decision(text: str) -> None:
    store = LocalStore()
    store.insert("f/proposal/2", text)
    decisions = _vote(store, {0: _SAME, 1: _SAME}, 3)
    assert decisions[0] == decisions[1] and not decisions[0].agreed
    assert decisions[0].reasons[2].startswith("left a proposal that cannot be read: it")


@pytest.mark.parametrize(
    "text",
    [
        "agreed",
        '{"format": 9, "agreed": true, "reasons": {"0": "agreed", "1": "agreed"}}',
        '{"format": 1, "agreed": true, "reasons": {"0": "agreed"}}',
    ],
)
def test_a_damaged_decision_is_negative_for_everybody(text: str) -> None:
    store = LocalStore()
    store.insert("f/decision", text)
    decisions = _vote(store, {0: _SAME, 1: _SAME}, 2)
    assert decisions[0] == decisions[1] and not decisions[0].agreed
    assert decisions[0].reasons[0].startswith("follows a decision that cannot be read: it")


def test_a_second_vote_on_a_topic_reads_the_first_decision() -> None:
    store = LocalStore()
    first = _vote(store, {0: _SAME, 1: _SAME}, 2)
    assert _vote(store, {1: _SAME}, 2) == first[:1]


def test_another_proposal_on_a_decided_topic_is_an_error() -> None:
    store = LocalStore()
    _vote(store, {0: _SAME, 1: _SAME}, 2)
    with pytest.raises(StoreError, match="worker 1 has proposed something else under"):
        _vote(store, {1: _UNWILLING}, 2)


def test_workers_whose_patience_ends_together_decide_once() -> None:
    # The arbiter's and the others' decisions race; 20 rounds of different sleeps.
    for pause in range(20):
        store = LocalStore()

        def vote(worker: int, store: LocalStore = store, pause: int = pause) -> list[Decision]:
            if worker == 0:
                time.sleep(0.001 * pause)
            return _vote(store, {worker: _SAME}, 4, seconds=0.01)

        decisions = [voted[0] for voted in together([partial(vote, w) for w in range(4)])]
        assert all(decision == decisions[0] for decision in decisions)


def test_a_table_that_goes_away_ends_a_vote() -> None:
    store = FailingStore()
    threading.Timer(0.05, store.fail).start()
    with pytest.raises(StoreError, match="the service has gone"):
        _vote(store, {1: _SAME}, 2)


_OTHER = Proposal({"version": "1.0", "plan": "cd34"})


def test_a_worker_has_missed_what_another_decided_alone_on_something_else() -> None:
    store = LocalStore()
    _vote(store, {1: _SAME}, 2, seconds=0.05)
    voter = Voter(store, 0, 2, 0.05)
    assert voter.has_missed("f", _OTHER)
    # Late for a vote on the same plan, it follows; and nothing is decided of another topic.
    assert not voter.has_missed("f", _SAME)
    assert not voter.has_missed("g", _OTHER)


def test_a_worker_that_comes_late_to_a_refusal_has_not_missed_it() -> None:
    store = LocalStore()
    _vote(store, {1: _UNWILLING}, 2)
    assert not Voter(store, 0, 2, 0.05).has_missed("f", _OTHER)


def test_a_worker_has_not_missed_what_it_voted_on_itself() -> None:
    store = LocalStore()
    _vote(store, {0: _OTHER, 1: _SAME}, 2)
    assert not Voter(store, 0, 2, 0.05).has_missed("f", Proposal({"plan": "ef56"}))
