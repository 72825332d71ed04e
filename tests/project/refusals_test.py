"""Refusals are made from the catalogue, whole, and decided on by their kinds."""

from __future__ import annotations

import ast

import pytest

from tests.project.imports import CHECKOUT, ROOT
from tests.project.prose import kinds_named, matches_on_prose, misused_kinds
from tf_wu_shard.refusals import KINDS

PACKAGE = "tf_wu_shard.refusals"

SOURCES = [
    file for file in CHECKOUT.sources("tf_wu_shard") if not file.startswith("tf_wu_shard/refusals/")
]

TREES = {file: ast.parse((ROOT / file).read_text(encoding="utf-8")) for file in SOURCES}


def test_nobody_matches_on_prose() -> None:
    found = {file: matches_on_prose(tree) for file, tree in TREES.items()}
    wrong = {file: places for file, places in found.items() if places}
    assert not wrong, f"these decide on the words of a refusal, not on its kind: {wrong}"


def test_every_refusal_has_the_values_that_its_sentence_needs() -> None:
    found = {file: misused_kinds(tree) for file, tree in TREES.items()}
    assert not any(found.values()), {file: wrong for file, wrong in found.items() if wrong}


def test_kinds_are_named_with_their_group() -> None:
    """Where they are not, nobody sees here what a refusal is made with."""
    taken = {
        (file, alias.name)
        for file, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE)
        for alias in node.names
        if alias.name not in ("Refusal", "Kind", "KINDS", "refusal_from")
    }
    assert not taken


def test_every_kind_serves_somebody() -> None:
    named = set().union(*map(kinds_named, TREES.values()))
    unused = [kind.key for kind in KINDS.values() if kind not in named]
    assert not unused


@pytest.mark.parametrize(
    "offender",
    [
        "if left.reason == other.reason:\n    pass",
        '"the shape of" in report.reason',
        'refusal.reason.startswith("no rule")',
        're.search("needs (.*)", refusal.cure)',
        'reason = f"{refusal}"\nfound = reason.partition(" ")',
        "text = str(one.refusal)\nwas = text != _NO_VALUE",
        'left["reason"].split()',
        'any("below min_elements=" in text for text in texts)',
        'line.endswith("an update of each weight from its own gradient alone")',
        'match left.reason:\n    case "it has no rows":\n        pass',
        "pattern.fullmatch(held.cure)",
    ],
)
def test_a_match_on_prose_is_seen(offender: str) -> None:
    assert matches_on_prose(ast.parse(offender))


@pytest.mark.parametrize(
    "innocent",
    [
        "refusal.kind is refusals.Storage.NO_VALUE",
        "refusal.kind in refusals.SMALL",
        "if left.cure:\n    print(left.reason)",
        'f"{left.reason} (at {left.where})"',
        "refusal is not None and refusal.reason",
        'report.verdict == "nothing sharded"',
    ],
)
def test_what_asks_for_kinds_or_shows_sentences_is_none(innocent: str) -> None:
    assert not matches_on_prose(ast.parse(innocent))


@pytest.mark.parametrize(
    "offender",
    [
        "refusals.Rules.NO_RULE.at(op.name)",
        "refusals.Rules.NO_RULE.at(op.name, op_type=op.type, shape=())",
        "refusals.Rules.NO_RULE.at(op.name, op.type)",
        "refusals.Rules.NO_RULE.at(op.name, **detail)",
        "refusals.Rules.NO_SUCH_KIND.at(op.name)",
        "kind = refusals.Plan.EMPTY",
        'Refusal(kind, "w")',
    ],
)
def test_a_refusal_that_may_lack_a_value_is_seen(offender: str) -> None:
    assert misused_kinds(ast.parse(offender))


@pytest.mark.parametrize(
    "innocent",
    [
        "refusals.Rules.NO_RULE.at(op.name, op_type=op.type)",
        "refusals.Plan.EMPTY.at()",
        "left.is_of(*refusals.SMALL) or left.is_of(refusals.Plan.EMPTY)",
    ],
)
def test_a_refusal_with_its_values_is_none(innocent: str) -> None:
    assert not misused_kinds(ast.parse(innocent))
