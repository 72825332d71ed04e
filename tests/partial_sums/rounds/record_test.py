"""What is said of rounds: the share in time, the latest gradient, who held the others up."""

from __future__ import annotations

from tf_wu_shard.partial_sums.rounds.record import Part, Record

_IN_TIME = Part(True, 1, 0, False, False)
_LATE = Part(False, 0, 0, False, False)
_CATCHES_UP = Part(True, 3, 2, True, False)
_OUT = Part(False, 0, 0, False, True)


def test_nothing_is_said_before_the_first_round() -> None:
    assert Record(2).summary == "no round was taken yet"


def test_all_in_time() -> None:
    record = Record(2)
    record.add([_IN_TIME, _IN_TIME])
    assert record.summary == "100.0 % of them were in time in 1 rounds"


def test_a_worker_that_holds_others_up_is_named() -> None:
    record = Record(2)
    for parts in ([_IN_TIME, _LATE], [_IN_TIME, _LATE], [_IN_TIME, _CATCHES_UP]):
        record.add(parts)
    assert record.summary == (
        "66.7 % of them were in time in 3 rounds, the others at most 2 late; the others waited for"
        " worker 1 to catch up in 1"
    )


def test_who_has_no_batch_is_not_late() -> None:
    record = Record(2)
    record.add([_IN_TIME, _OUT])
    record.add([_OUT, _OUT])
    assert record.rounds == 1
    assert record.share_in_time == 1.0


def test_parts_travel_as_numbers() -> None:
    for part in (_IN_TIME, _LATE, _CATCHES_UP, _OUT):
        assert Part.of(part.numbers()) == part
