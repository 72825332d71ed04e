"""Which worker is late in which step, by how long: delays that are injected before a step."""

from __future__ import annotations

import random
from typing import Literal, get_args

Kind = Literal["one", "ramp", "none", "text"]

KINDS: tuple[Kind, ...] = get_args(Kind)


def delays(kind: Kind, workers: int, steps: int, seconds: float, seed: int) -> list[list[float]]:
    """The delays of all workers in all steps, in seconds; [steps][workers].

    Args:
        kind: "one" worker, drawn at random for each step, is late; a "ramp" from none to all of the
            delay shifts by one worker each step; "none" is later than another, all take the delay;
            with "text" work itself is unequal.
        workers: How many there are.
        steps: How many steps.
        seconds: The longest delay.
        seed: Of the draws.
    """
    drawn = random.Random(seed)
    found = []
    for step in range(steps):
        if kind == "one":
            late = drawn.randrange(workers)
            found.append([seconds * (worker == late) for worker in range(workers)])
        elif kind == "ramp":
            places = [(worker + step) % workers for worker in range(workers)]
            found.append([seconds * place / max(1, workers - 1) for place in places])
        else:
            found.append([seconds * (kind == "none")] * workers)
    return found
