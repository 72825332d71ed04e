"""What means the same has one number, in a graph and in what it calls."""

from __future__ import annotations

from tf_wu_shard.step.numbering import Numbering


def test_what_means_the_same_has_one_number_wherever_it_stands() -> None:
    numbering = Numbering()
    first, other = numbering.number("x"), numbering.number(("x", 1))
    inside = numbering.inside(("call", "f"))
    assert (inside.number("x"), inside.number(("x", 1))) == (first, other)
    assert inside.number("y") not in (first, other) and numbering.number("y") == inside.number("y")


def test_a_call_is_within_all_that_lead_to_it() -> None:
    inside = Numbering().inside(("call", "f")).inside(("again", "g"))
    assert inside.is_within("f") and inside.is_within("g") and not inside.is_within("call")
    assert not Numbering().is_within("f")


def test_calls_are_counted_for_all() -> None:
    numbering = Numbering()
    inside = numbering.inside(("call", "f"))
    assert not inside.has_many_calls
    inside.by_call.update({number: [] for number in range(300)})
    assert numbering.has_many_calls
