"""All workers agree to the same thing, or none does, in two phases over the table they share.

Every worker leaves its proposal; the arbiter, worker 0, reads all of them and leaves one decision.
A key takes one text only, so whoever loses patience may leave a decision too, a negative one: all
follow the one that stands there, however late they come.

Answers: what was decided, and what each worker said. A vote takes little more than its seconds,
whoever is dead. It does not promise that an agreed worker lives on, and it never removes a topic.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping

from tf_wu_shard.workers import messages
from tf_wu_shard.workers.messages import MessageError
from tf_wu_shard.workers.store import Store, StoreError, wait_for

ARBITER = 0

# The others wait for longer than the arbiter does, so that its reasons are the ones that stand.
_PATIENCE = 1.25

_AGREED = "agreed"

# The part of a proposal that differs where workers have different functions.
PLAN = "plan"


@dataclasses.dataclass(frozen=True)
class Proposal:
    """What one worker wants.

    Attributes:
        subject: Named parts, such as a version, options and the digest of a plan; each must be
            equal on all workers.
        refusal: Why this worker does not want to; None where it does.
    """

    subject: Mapping[str, str]
    refusal: str | None = None


@dataclasses.dataclass(frozen=True)
class Decision:
    """What stands decided, the same on every worker.

    Attributes:
        agreed: Whether all workers proposed the same and none refused.
        reasons: What each worker said, by its number: that it agreed, what it proposed in the parts
            that differ, why it refused, or that it did not answer in time.
        silent: The workers that did not answer in time.
        differing: The parts of the subject in which the proposals differ.
    """

    agreed: bool
    reasons: Mapping[int, str]
    silent: tuple[int, ...] = ()
    differing: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """All workers' reasons in one line."""
        return "; ".join(f"worker {worker} {self.reasons[worker]}" for worker in self.reasons)


class Voter:
    """Votes for one worker; any of its threads may vote, on topics of their own."""

    def __init__(
        self,
        store: Store,
        rank: int,
        total: int,
        seconds: float,
        grace_seconds: float = 1.0,
    ) -> None:
        """Makes the voter of a worker.

        Args:
            store: The table that all workers share.
            rank: The worker's number.
            total: How many workers there are.
            seconds: How long the arbiter waits for proposals; the same on all workers.
            grace_seconds: How long a refusal waits for what the others say, for the reasons alone.
        """
        self._store = store
        self._rank = rank
        self._total = total
        self._seconds = seconds
        self._grace = min(seconds, grace_seconds)

    def vote(self, topic: str, proposal: Proposal) -> Decision:
        """Proposes, and waits for the decision of all.

        Args:
            topic: What is voted on, the same key on all workers. It is decided once for all: a
                later vote on it with the same proposal reads the same decision.
            proposal: What this worker wants.

        Returns:
            The decision, equal on every worker that gets one.

        Raises:
            StoreError: The table cannot be reached, so that this worker does not know what was
                decided and must stop; or it proposed something else on this topic before.
        """
        self._propose(topic, proposal)
        if proposal.refusal is not None:
            self._settle(topic, self._grace)
        elif self._rank == ARBITER:
            self._settle(topic, self._seconds)
        elif self._store.get(_decision_key(topic), self._seconds * _PATIENCE) is None:
            self._lose_patience(topic)
        return self._standing(topic)

    def has_missed(self, topic: str, proposal: Proposal) -> bool:
        """Whether a topic was decided without this worker, and on something else.

        Workers trace at times of their own: one that alone traced a function again, and came to
        another plan, waited for the others in vain. A worker that is late for a vote on the same
        plan, or on what another does not want, has that decision to follow.

        Args:
            topic: As in `vote`.
            proposal: What this worker wants to vote on.

        Raises:
            StoreError: The table cannot be reached.
        """
        if self._store.get(_decision_key(topic), 0) is None:
            return False
        texts = [self._store.get(_proposal_key(topic, n), 0) for n in range(self._total)]
        if texts[self._rank] is not None or any(map(_refuses, texts)):
            return False
        plans = {_read_proposal(text).subject.get(PLAN) for text in texts if text is not None}
        return proposal.subject.get(PLAN) not in plans

    def _propose(self, topic: str, proposal: Proposal) -> None:
        key = _proposal_key(topic, self._rank)
        text = messages.write(
            {
                "subject": dict(proposal.subject),
                "refused": proposal.refusal is not None,
                "refusal": proposal.refusal or "",
            }
        )
        if self._store.insert(key, text):
            return
        # A function that is traced again asks again.
        if self._store.get(key, self._seconds) != text:
            raise StoreError(
                f"worker {self._rank} has proposed something else under {key!r} before; a topic is"
                " decided once, so vote on what is new under a topic of its own"
            )

    def _settle(self, topic: str, seconds: float) -> None:
        """Reads all proposals and leaves the decision, unless one stands already."""
        decided = False

        def is_decided() -> bool:
            nonlocal decided
            decided = self._store.get(_decision_key(topic), 0) is not None
            return decided

        started = time.monotonic()
        deadline = started + seconds
        texts: dict[int, str | None] = {}
        for worker in range(self._total):
            key = _proposal_key(topic, worker)
            texts[worker] = wait_for(self._store, key, deadline, is_decided)
            if decided:
                return
            if _refuses(texts[worker]):
                deadline = min(deadline, time.monotonic() + self._grace)
        self._decide(topic, _judge(texts, time.monotonic() - started))

    def _lose_patience(self, topic: str) -> None:
        texts = {
            worker: self._store.get(_proposal_key(topic, worker), 0)
            for worker in range(self._total)
        }
        waited = self._seconds * _PATIENCE
        judged = _judge(texts, waited)
        reasons, silent = dict(judged.reasons), set(judged.silent)
        if texts[ARBITER] is not None:
            reasons[ARBITER] = f"proposed, but has decided nothing within {waited:.3g} seconds"
            silent.add(ARBITER)
        self._decide(topic, Decision(False, reasons, tuple(sorted(silent)), judged.differing))

    def _decide(self, topic: str, decision: Decision) -> None:
        reasons = {str(worker): reason for worker, reason in decision.reasons.items()}
        said = {
            "agreed": decision.agreed,
            "reasons": reasons,
            "silent": [*decision.silent],
            "differing": [*decision.differing],
        }
        text = messages.write(said)
        self._store.insert(_decision_key(topic), text)

    def _standing(self, topic: str) -> Decision:
        key = _decision_key(topic)
        text = self._store.get(key, self._seconds)
        if text is None:
            raise StoreError(f"the decision under {key!r} was removed; nothing may remove it")
        return _read_decision(text, self._total)


def _proposal_key(topic: str, worker: int) -> str:
    return f"{topic}/proposal/{worker}"


def _decision_key(topic: str) -> str:
    return f"{topic}/decision"


def _judge(texts: Mapping[int, str | None], waited: float) -> Decision:
    """Decides on all workers' proposals; None is one that did not come in `waited` seconds."""
    reasons: dict[int, str] = {}
    proposals: dict[int, Proposal] = {}
    for worker, text in texts.items():
        if text is None:
            reasons[worker] = f"has not answered within {waited:.3g} seconds"
            continue
        try:
            proposals[worker] = _read_proposal(text)
        except MessageError as error:
            reasons[worker] = f"left a proposal that cannot be read: {error}"
    differing = _differing_parts([proposal.subject for proposal in proposals.values()])
    for worker, proposal in proposals.items():
        if proposal.refusal is not None:
            reasons[worker] = f"refused: {proposal.refusal}"
        elif differing:
            said = " and ".join(_part(proposal.subject, name) for name in differing)
            reasons[worker] = f"proposed {said}"
        else:
            reasons[worker] = _AGREED
    willing = all(proposal.refusal is None for proposal in proposals.values())
    agreed = len(proposals) == len(texts) and willing and not differing
    silent = tuple(sorted(worker for worker, text in texts.items() if text is None))
    return Decision(agreed, dict(sorted(reasons.items())), silent, tuple(differing))


def _differing_parts(subjects: list[Mapping[str, str]]) -> list[str]:
    names = dict.fromkeys(name for subject in subjects for name in subject)
    return [name for name in names if len({subject.get(name) for subject in subjects}) > 1]


def _part(subject: Mapping[str, str], name: str) -> str:
    return f"{name} {subject[name]!r}" if name in subject else f"no {name}"


def _refuses(text: str | None) -> bool:
    try:
        return text is not None and _read_proposal(text).refusal is not None
    except MessageError:
        # It cannot be agreed to either.
        return True


def _read_proposal(text: str) -> Proposal:
    fields = messages.read(text, {"subject": dict, "refused": bool, "refusal": str})
    if not all(isinstance(part, str) for part in fields["subject"].values()):
        raise MessageError("a part of its subject is no text")
    return Proposal(fields["subject"], fields["refusal"] if fields["refused"] else None)


def _read_decision(text: str, total: int) -> Decision:
    """Reads what stands decided; what cannot be read is negative, and so it is for everybody."""
    try:
        types = {"agreed": bool, "reasons": dict, "silent": list, "differing": list}
        fields = messages.read(text, types)
        reasons = {worker: fields["reasons"].get(str(worker)) for worker in range(total)}
        if not all(isinstance(reason, str) for reason in reasons.values()):
            raise MessageError(f"it does not say what each of {total} workers said")
    except MessageError as error:
        reason = f"follows a decision that cannot be read: {error}"
        return Decision(False, dict.fromkeys(range(total), reason))
    silent, differing = tuple(fields["silent"]), tuple(fields["differing"])
    return Decision(fields["agreed"], reasons, silent, differing)
