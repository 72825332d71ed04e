"""The catalogue of refusals: each says one thing, whole, by a name that stays."""

from __future__ import annotations

import json
import re

import pytest

from tf_wu_shard import refusals
from tf_wu_shard.refusals import GROUPS, KINDS, Kind, refusal_from

EACH = pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.key)


@EACH
def test_a_kind_says_its_sentences_with_its_values(kind: Kind) -> None:
    refusal = kind.at("op", **{name: f"<{name}>" for name in kind.details})
    said = f"{refusal.reason} {refusal.cure}"
    assert all(f"<{name}>" in said.replace("'", "") for name in kind.details)
    assert not re.search(r"[{}]", said)
    assert refusal.reason and not refusal.reason.endswith((".", " "))
    assert not refusal.cure.endswith((".", " "))


@EACH
def test_a_kind_has_the_name_that_programs_know_it_by(kind: Kind) -> None:
    assert re.fullmatch(r"[a-z]+(_[a-z0-9]+)*", kind.key)


def test_no_two_kinds_have_one_name_or_say_the_same() -> None:
    kinds = [kind for group in GROUPS for kind in group.__members__.values()]
    assert len({kind.key for kind in kinds}) == len(kinds)
    assert len({kind.says for kind in kinds}) == len(kinds)


def test_a_refusal_names_its_place_where_it_has_one() -> None:
    assert str(refusals.Rules.NO_RULE.at("Sum_1", op_type="Sum")) == "no rule for Sum (Sum_1)"
    assert str(refusals.Plan.EMPTY.at()) == "it has no elements"


def test_a_shape_is_written_as_a_list() -> None:
    refusal = refusals.Rules.RESIZES.at("r", shape=(2, 3), result=(6,))
    assert refusal.reason == "it makes [6] of [2, 3]"


def test_a_refusal_calls_its_variable_it_until_somebody_names_that() -> None:
    refusal = refusals.Storage.CAPTURED.at(function="f")
    assert refusal.reason == "it is captured by f, traced before"
    assert refusal.about("its slot m").reason == "its slot m is captured by f, traced before"


def test_what_also_stands_in_the_way_is_said_behind_and_lifts_nothing() -> None:
    first = refusals.Rules.NO_RULE.at("c", op_type="Cumsum")
    both = first.beside(refusals.Matrices.NOR_ALONE.at(why="it has no rows"))
    assert both.reason == "no rule for Cumsum; nor can one replica do it alone: it has no rows"
    assert both.cure == first.cure
    assert both.kinds == {refusals.Rules.NO_RULE, refusals.Matrices.NOR_ALONE}
    # The rules are no longer all that stands in the way.
    assert first.of_rules and not both.of_rules


def test_a_refusal_comes_back_from_json_as_it_was() -> None:
    first = refusals.Rules.BROADCASTS.at("op", shape=(2, 1), result=(2, 3))
    refusal = first.beside(refusals.Plan.TOO_SMALL.at(elements=6, limit=9))
    assert refusal_from(json.loads(json.dumps(refusal.to_data()))) == refusal
    with pytest.raises(ValueError, match="no refusal of the kind 'other'"):
        refusal_from({"kind": "other", "where": "", "detail": {}, "besides": []})
