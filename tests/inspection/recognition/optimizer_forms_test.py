"""The forms of optimizers are told apart, and name nothing that has no meaning."""

from __future__ import annotations

import re

import pytest

from tf_wu_shard.inspection.recognition.optimizer_forms import FORMS, SLOTS, OptimizerForm

# Functions that forms are made of; a letter is the gradient, the weight, a slot or its new value.
FUNCTIONS = {"max", "min", "sum", "of", "abs", "sign", "as", "n", "kept", "trust", "newton_schulz"}


@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{form.name}-{form.slots}")
def test_a_form_names_its_own_slots_and_no_others(form: OptimizerForm) -> None:
    words = set(re.findall(r"[a-z_]+", form.weight)) - FUNCTIONS
    assert words <= {"g", "w", *form.slots}
    assert set(form.slots) <= set(SLOTS)
    assert "'" in form.weight or not form.slots or form.name == "lion-like"


@pytest.mark.parametrize("kind", SLOTS)
def test_what_becomes_of_a_slot_is_of_itself_the_gradient_the_weight_and_other_slots(
    kind: str,
) -> None:
    for text, _ in SLOTS[kind]:
        words = set(re.findall(r"[a-z_]+", text)) - FUNCTIONS
        assert words <= {"g", "w", "s", *SLOTS} - {kind}


def test_no_two_optimizers_have_one_form() -> None:
    either = [
        ("".join(sorted(form.slots)), form.weight, keeps)
        for form in FORMS
        for keeps in ((True, False) if form.keeps is None else (form.keeps,))
    ]
    assert len(set(either)) == len(either)


def test_no_two_slots_are_written_alike() -> None:
    either = [
        (text, keeps)
        for known in SLOTS.values()
        for text, kept in known
        for keeps in ((True, False) if kept is None else (kept,))
    ]
    assert len(set(either)) == len(either)
