"""How long the others take to end when one worker of two is lost, with the flag and without.

    python -m tests.equivalence.fault_times [--rounds N] [--moment M ...] [--how H ...]

Launches each fault without the flag and with it in turns, so that what else the machine does meets
both, and prints a table of medians in seconds from the signal on: until Python gets the error, and
until the process has ended. A pair of launches takes half a minute on two cores.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import statistics
import time
from collections.abc import Iterator, Sequence

from tests.workers.processes import CompletedWorker, Worker, completed, running

MOMENTS = ("step", "trace", "vote", "save", "asked", "answering", "answered")
LOSSES = ("kill", "stop")

# Starting, tracing and training so far takes ten seconds on two cores.
_START_SECONDS = 180

# What hangs, hangs. TensorFlow notices a stopped worker after 10 s by its heartbeat, and then tears
# down; whatever waits for as long as an option says would take 30 or 60 s.
HANGS_SECONDS = 120


@dataclasses.dataclass(frozen=True)
class Fault:
    """What happens to a worker; see `faults_run`.

    Attributes:
        moment: When.
        how: What.
        victim: To which of two.
    """

    moment: str
    how: str
    victim: int

    def __str__(self) -> str:
        return f"{self.moment}-{self.how}-{('chief', 'worker')[self.victim]}"


@dataclasses.dataclass(frozen=True)
class Survived:
    """How the other worker fared.

    Attributes:
        noticed: Seconds from the moment until Python had an error; None where it never had one.
        ended: Seconds until the process had ended.
        done: The worker.
    """

    noticed: float | None
    ended: float
    done: CompletedWorker

    def said(self, word: str) -> list[str]:
        """What follows a word that began a line of its output; nothing where there is none."""
        lines = [line.split() for line in self.done.output.splitlines()]
        return next((words[1:] for words in lines if words[:1] == [word]), [])


def survive(fault: Fault, flag: str) -> Survived:
    """Launches two workers, and waits until the one that is no victim has ended.

    Args:
        fault: What happens to the other.
        flag: "on" or "off".

    Raises:
        AssertionError: If the fault never comes, or the worker hangs.
    """
    words = [fault.moment, fault.how, str(fault.victim), flag]
    with running("tests.equivalence.faults_run", words, workers=2) as workers:
        struck = moment_of(workers[fault.victim])
        (done,) = completed([workers[1 - fault.victim]], HANGS_SECONDS)
        ended = time.monotonic() - struck
    survived = Survived(None, ended, done)
    said = survived.said("noticed")
    return dataclasses.replace(survived, noticed=float(said[0]) - struck) if said else survived


def moment_of(victim: Worker) -> float:
    """Waits for a worker's moment; when that was, in seconds of the monotonic clock."""
    _, when = victim.line("struck", _START_SECONDS).split()
    return float(when)


def in_turns(fault: Fault) -> Iterator[tuple[Survived, Survived]]:
    """Launches without the flag and with it, as often as asked."""
    while True:
        unsharded = survive(fault, "off")
        yield unsharded, survive(fault, "on")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, and prints the table."""
    parser = argparse.ArgumentParser(prog="fault_times", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="pairs of launches for each fault")
    parser.add_argument("--moment", action="append", choices=MOMENTS, help="only this one")
    parser.add_argument("--how", action="append", choices=LOSSES, help="only this")
    chosen = parser.parse_args(arguments)
    cases = itertools.product(chosen.moment or MOMENTS, chosen.how or LOSSES, (0, 1))
    print(f"{'fault':<24}{'noticed off':>12}{'on':>7}{'ended off':>12}{'on':>7}{'ratio':>7}")
    for case in cases:
        fault = Fault(*case)
        pairs = list(itertools.islice(in_turns(fault), chosen.rounds))
        flags = list(zip(*pairs, strict=True))
        noticed = [statistics.median([s.noticed or s.ended for s in each]) for each in flags]
        ended = [statistics.median([s.ended for s in each]) for each in flags]
        print(
            f"{fault!s:<24}{noticed[0]:>12.1f}{noticed[1]:>7.1f}{ended[0]:>12.1f}{ended[1]:>7.1f}"
            f"{ended[1] / ended[0]:>7.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
