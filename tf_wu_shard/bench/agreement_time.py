"""How long the workers' agreement on a step takes, once all of them are there.

A step is agreed on by two votes, on its plan and on its rewriting. Each counts from the moment the
last worker comes to it until all workers know the decision: what a worker waits for one that still
traces is not the votes' time. All workers must be processes of one machine, whose monotonic clock
is the same for all.

It does not say what votes cost over a network, where each message takes its time.
"""

from __future__ import annotations

from collections.abc import Sequence

# When a worker came to a vote, and when it knew the decision; as JSON has them.
Times = Sequence[float]


def seconds_of_agreements(votes: Sequence[Sequence[Times]]) -> list[float]:
    """Seconds of each agreement.

    Args:
        votes: Of each worker, the times of its votes; two and two are an agreement.

    Raises:
        ValueError: The workers have not all taken part in the same votes.
    """
    taken = [
        max(ended for _, ended in vote) - max(begun for begun, _ in vote)
        for vote in zip(*votes, strict=True)
    ]
    return [first + second for first, second in zip(taken[::2], taken[1::2], strict=True)]
