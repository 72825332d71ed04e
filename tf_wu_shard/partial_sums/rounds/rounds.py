"""The rounds of one worker: what its steps hand in, what they get, and two threads.

A step hands in its gradient and takes the next sum. One thread starts the rounds that are this
worker's to start, as soon as its gradient is there; the other takes part in all of them, one after
the other, with whatever was handed in until then. So every worker gets every sum, in one order.

A worker that has not taken the sums of `max_staleness` rounds takes part in no further one until it
has taken one of them; the others wait. Its gradient of that step is handed in before, so that it is
never later than that. Nothing here ends by itself: the program ends it.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from tf_wu_shard.partial_sums.rounds.contributions import (
    Contribution,
    HandedIn,
    RoundsEndedError,
    RoundSum,
    Table,
    no_sum,
)
from tf_wu_shard.partial_sums.rounds.record import Record, StepTimes

# For a thread to end that is in the midst of a round, which others may need.
_LAST_SECONDS = 5.0


class Rounds:
    """One worker's part in all rounds of one step.

    Attributes:
        record: What happened so far.
        finish: Called where all workers have handed in all that they had, on each of them, with the
            sums of gradients that came too late for any step.
    """

    finish: Callable[[Sequence[Any]], None] | None = None

    def __init__(
        self,
        name: str,
        number: int,
        total: int,
        max_staleness: int,
        may_start: Callable[[int], bool],
        table: Table,
        sum_up: Callable[[Contribution], RoundSum],
        add: Callable[[Sequence[Any | None], Sequence[Any]], Sequence[Any]],
        once_failed: Callable[[str], None],
    ) -> None:
        """Begins to take part.

        Args:
            name: What to call the threads after.
            number: This worker's number.
            total: How many workers there are.
            max_staleness: How many sums may wait for this worker.
            may_start: Whether this worker starts a round, by its number.
            table: Where rounds are started.
            sum_up: Takes part in a round; blocks until all do.
            add: Adds up the gradients of two steps; the first may have None for nothing.
            once_failed: Called with what happened where a thread can go on no more.
        """
        self.record = Record(total)
        self._number, self._total = number, total
        self._max_staleness = max_staleness
        self._may_start = may_start
        self._table = table
        self._sum_up = sum_up
        self._add = add
        self._once_failed = once_failed
        self._changed = threading.Condition()
        self._handed_in = HandedIn()
        self._last: RoundSum | None = None
        # The number of the last step that this worker had no batch for.
        self._out_at = -1
        # The sum for a step that this worker has not taken, but others have.
        self._taken_before: RoundSum | None = None
        # Whether it has no batch for that step.
        self._has_none = False
        self._carried: Sequence[Any | None] | None = None
        self._sums: collections.deque[RoundSum] = collections.deque()
        self._num_handed_in = 0
        self._num_taken = 0
        self._num_summed = 0
        self._num_finished = 0
        self._ended: str | None = None
        self._is_summing = False
        self._threads = [
            threading.Thread(target=self._run, args=(work,), name=f"{name}: {word}", daemon=True)
            for work, word in ((self._start_rounds, "starts"), (self._take_part, "sums"))
        ]
        for thread in self._threads:
            thread.start()

    def exchange(self, gradients: Sequence[Any], values: Sequence[Any]) -> RoundSum:
        """Hands in what a step has, and waits for the next sum.

        Args:
            gradients: They are added up until a round takes them.
            values: They replace those of the step before.

        Returns:
            The sum of the round that has the number of the step.

        Raises:
            RoundsEndedError: None will come.
        """
        with self._changed:
            taken, self._taken_before = self._taken_before, None
            has_none, self._has_none = self._has_none, False
            # What is computed in the place of a batch is of none.
            if not has_none:
                number = self._num_handed_in - (taken is not None)
                self._handed_in.add(number, gradients, values)
        return self._take() if taken is None else taken

    def has_batch(self, own: bool) -> bool:
        """Whether any worker has a batch for the next step; where this one has, it knows.

        Otherwise the round of that step tells, or the workers that were not in time for it do when
        they come so far; what this worker computes in the place of a batch is not handed in. Where
        none has a batch there is no step, and all hand in the rest, see `hand_in_rest`.

        Args:
            own: Whether this worker has one.

        Raises:
            RoundsEndedError: No other worker says any more.
        """
        self._has_none = not own and not self.hand_in_rest()
        return own or self._has_none

    def hand_in_rest(self, *, keeps: bool = False) -> bool:
        """Hands in all that is late, where all workers do, after as many steps on each.

        Args:
            keeps: Whether the next step takes what was late, and not `finish`; so it is on all
                workers where one wants it, or has no `finish`.

        Returns:
            Whether all do. Where another one takes its next step nothing is lost: the next step of
            this worker takes the same sum, and hands in its gradient late.

        Raises:
            RoundsEndedError: No other worker says any more.
        """
        if self._taken_before is not None:
            # Others have taken a step more already.
            return False
        is_left = self._carried is not None
        others = [one for one in range(self._total) if one != self._number]
        number, found = self._take_without_batch()
        in_time = any(part.in_time for part in found.parts)
        self._table.say(number, self._number, False)
        if in_time or any(self._table.ask(number, one) for one in others):
            self._taken_before = found
            return False
        number, rest = self._take_without_batch()
        finish = None if keeps else self.finish
        self._table.say(number, self._number, finish is not None)
        # Of all: whoever goes on may end its collectives, and they have to be through with this.
        finishes = all([self._table.ask(number, one) for one in others])
        self._num_finished = self._num_handed_in
        if is_left or any(part.gradients for part in (*found.parts, *rest.parts)):
            # A round that no worker hands anything in for has nothing but zeros.
            late = self._add(found.gradients, rest.gradients)
            if finish is None or not finishes:
                self._carried = late
            else:
                finish(late)
        return True

    def _take_without_batch(self) -> tuple[int, RoundSum]:
        """Takes the sum of a step that this worker has no gradient for; with the step's number."""
        with self._changed:
            self._out_at = number = self._num_handed_in
        return number, self._take()

    def _take(self) -> RoundSum:
        """Counts as handed in, and waits for the sum of the round that has the step's number."""
        with self._changed:
            number, begun = self._num_handed_in, time.monotonic()
            self._num_handed_in += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._sums or self._ended is not None)
            if not self._sums:
                raise RoundsEndedError(self._ended)
            self._num_taken += 1
            self._changed.notify_all()
            self.record.steps.append(StepTimes(begun, time.monotonic()))
            found = self._sums.popleft()
        if self._out_at != number and not any(part.in_time for part in found.parts):
            # Whoever started the round has no batch, and asks who has.
            self._table.say(number, self._number, True)
        if self._carried is not None:
            total = self._add(self._carried, found.gradients)
            found = dataclasses.replace(found, gradients=total)
            self._carried = None
        self._last = found
        return found

    def new_value(self, nothing: Any) -> int:
        """The number of one more value that steps give after an exchange.

        All workers ask for it before a round of the first step that gives it.

        Args:
            nothing: A zero of its shape.
        """
        with self._changed:
            return self._handed_in.new_value(nothing)

    def say(self, number: int, value: Any) -> Any | None:
        """Gives a value for the rounds that come.

        Args:
            number: What `new_value` returned.
            value: It replaces the one before.

        Returns:
            The sum over all workers, in the round whose sum was taken last; None where none had
            given one before.
        """
        with self._changed:
            self._handed_in.say(number, value)
            sums = self._last.said if self._last is not None else ()
            return sums[number] if number < len(sums) else None

    @property
    def pending(self) -> list[Sequence[Any]]:
        """The gradients that no round has yet, oldest first."""
        with self._changed:
            return self._handed_in.gradients

    @property
    def carried(self) -> Sequence[Any]:
        """The sums of gradients, the same on all workers, that no step has taken yet.

        There are none where there is nothing; None is one without anything.
        """
        with self._changed:
            return self._carried or ()

    @carried.setter
    def carried(self, sums: Sequence[Any]) -> None:
        with self._changed:
            self._carried = sums or None

    @property
    def num_steps(self) -> int:
        """How many sums this worker has taken."""
        return self._num_taken

    @property
    def is_used(self) -> bool:
        """Whether any step was taken since the last end of all batches."""
        return self._num_handed_in > self._num_finished

    @property
    def is_settled(self) -> bool:
        """Whether nothing is late, and no sum of what was waits for a step."""
        return not self.is_used and (self._carried is None or not self._num_taken)

    def end(self, reason: str) -> None:
        """Ends both threads; one that is in the midst of a round is given a few seconds.

        Args:
            reason: What steps that wait are told.
        """
        self._end(reason)
        with self._changed:
            # A thread that waits at the table until the program ends keeps this object.
            self._sum_up = no_sum
            self._handed_in = HandedIn()
            self._last = self._taken_before = self._carried = None
            self._sums.clear()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(_LAST_SECONDS if self._is_summing else 0.0)

    def _end(self, reason: str) -> None:
        with self._changed:
            self._ended = self._ended or reason
            self._changed.notify_all()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            if self._ended is None:
                said = f"{type(error).__name__}: {error}"
                self._end(said)
                self._once_failed(said)

    def _start_rounds(self) -> None:
        for number in itertools.count():
            with self._changed:
                self._changed.wait_for(functools.partial(self._is_due, number))
                if self._ended:
                    return
                is_there = self._num_summed > number
            if not is_there and self._may_start(number):
                self._table.start(number)

    def _is_due(self, number: int) -> bool:
        return self._num_handed_in > number or self._ended is not None

    def _take_part(self) -> None:
        for number in itertools.count():
            self._table.wait_for(number)
            held_up = self._wait_for_room(number)
            if self._ended:
                return
            with self._changed:
                contribution = self._handed_in.taken(number, held_up, self._out_at == number)
            self._take_part_in(contribution)

    def _take_part_in(self, contribution: Contribution) -> None:
        # Nothing is to be kept of a round while the next one is waited for.
        self._is_summing = True
        found = self._sum_up(contribution)
        self._is_summing = False
        with self._changed:
            self._sums.append(found)
            self._num_summed += 1
            self.record.add(found.parts)
            self._changed.notify_all()

    def _wait_for_room(self, number: int) -> bool:
        """Waits while this worker is as far behind as it may be; whether others wait with it."""

        def has_room() -> bool:
            # Of the first round all are in time: there are no values of any before.
            behind = number - self._num_taken
            return behind < self._max_staleness and self._num_handed_in > 0

        with self._changed:
            is_behind = number > 0 and not has_room()
            self._changed.wait_for(lambda: has_room() or self._ended)
            return is_behind
