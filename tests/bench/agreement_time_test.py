"""An agreement's time is what it takes from the last worker's coming on."""

from __future__ import annotations

import pytest

from tf_wu_shard.bench.agreement_time import seconds_of_agreements


def test_waiting_for_a_late_worker_is_no_part_of_it() -> None:
    early, late = [(0.0, 9.25), (10.0, 10.5)], [(9.0, 9.125), (10.25, 10.75)]
    assert seconds_of_agreements([early, late]) == [0.25 + 0.5]


def test_two_and_two_votes_are_an_agreement() -> None:
    votes = [(float(number), number + 0.5) for number in range(4)]
    assert seconds_of_agreements([votes, votes]) == [1.0, 1.0]
    assert seconds_of_agreements([[], []]) == []


def test_votes_that_not_all_took_part_in_have_no_time() -> None:
    with pytest.raises(ValueError, match="shorter"):
        seconds_of_agreements([[(0.0, 1.0), (1.0, 2.0)], [(0.0, 1.0)]])
