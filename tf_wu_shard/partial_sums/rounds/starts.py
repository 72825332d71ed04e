"""Who starts a round: whoever is first, or one worker drawn by a seed that all of them share."""

from __future__ import annotations

import random


def may_start(mode: str, seed: int, number: int, worker: int, total: int) -> bool:
    """Whether a worker starts a round once its gradient for it is there.

    Drawn evenly, so that on average half of the workers are there before the one that starts: Li et
    al., "Taming Unbalanced Training Workloads in Deep Learning with Partial Collective Operations"
    (PPoPP 2020), section 4.

    Args:
        mode: "solo" or "majority".
        seed: The same on all workers.
        number: The round's.
        worker: The worker's number.
        total: How many workers there are.
    """
    if mode == "solo":
        return True
    # Seeded by a text, which Python hashes alike in all processes and on all machines.
    return random.Random(f"{seed}/{number}").randrange(total) == worker
