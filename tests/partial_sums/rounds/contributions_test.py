"""What steps hand in is taken by one round; what they say stands until they say something else."""

from __future__ import annotations

import pytest

from tf_wu_shard.partial_sums.rounds.contributions import (
    Contribution,
    HandedIn,
    RoundsEndedError,
    no_sum,
)
from tf_wu_shard.partial_sums.rounds.record import Part


def test_who_has_handed_in_nothing_has_no_gradients_and_no_values() -> None:
    taken = HandedIn().taken(3, holds_up=False, is_out=True)
    assert taken == Contribution([], None, [], Part(False, 0, 0, False, True))


def test_the_gradient_of_the_rounds_own_step_is_in_time() -> None:
    handed_in = HandedIn()
    handed_in.add(3, ["gradient"], ["value"])
    taken = handed_in.taken(3, holds_up=False, is_out=False)
    assert taken == Contribution([["gradient"]], ["value"], [], Part(True, 1, 0, False, False))


def test_a_round_takes_all_gradients_oldest_first_and_the_last_values() -> None:
    handed_in = HandedIn()
    for step in (2, 3, 4):
        handed_in.add(step, [f"gradient {step}"], [f"value {step}"])
    taken = handed_in.taken(5, holds_up=True, is_out=False)
    assert taken.gradients == [["gradient 2"], ["gradient 3"], ["gradient 4"]]
    assert taken.values == ["value 4"]
    # None is of round 5, and the oldest is of three rounds before.
    assert taken.part == Part(False, 3, 3, True, False)


def test_of_several_gradients_one_may_be_in_time() -> None:
    handed_in = HandedIn()
    for step in (2, 3):
        handed_in.add(step, [], [])
    assert handed_in.taken(3, False, False).part == Part(True, 2, 1, False, False)


def test_gradients_are_taken_once_and_values_stay() -> None:
    handed_in = HandedIn()
    handed_in.add(0, ["gradient"], ["value"])
    handed_in.taken(0, holds_up=False, is_out=False)
    assert handed_in.gradients == []
    again = handed_in.taken(1, holds_up=False, is_out=False)
    assert again == Contribution([], ["value"], [], Part(False, 0, 0, False, False))


def test_what_a_round_has_taken_does_not_grow_by_what_comes_later() -> None:
    handed_in = HandedIn()
    number = handed_in.new_value("nothing")
    handed_in.add(0, ["first"], [])
    taken = handed_in.taken(0, holds_up=False, is_out=False)
    handed_in.add(1, ["second"], [])
    handed_in.say(number, "later")
    assert taken.gradients == [["first"]]
    assert taken.said == [("nothing", False)]


def test_a_value_that_nobody_has_said_is_its_zero_and_counts_as_not_there() -> None:
    handed_in = HandedIn()
    numbers = [handed_in.new_value(f"zero {number}") for number in range(2)]
    assert numbers == [0, 1]
    handed_in.say(1, "first")
    handed_in.say(1, "second")
    said = [("zero 0", False), ("second", True)]
    assert handed_in.taken(0, False, False).said == said
    # It stands until it is replaced.
    assert handed_in.taken(1, False, False).said == said


def test_who_takes_part_no_more_gets_no_sum() -> None:
    with pytest.raises(RoundsEndedError):
        no_sum(HandedIn().taken(0, False, False))
