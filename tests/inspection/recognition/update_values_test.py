"""What an update writes is the same sum of products, however its ops compute it."""

from __future__ import annotations

from tests.graph.text_graph import DIALECT, view_of
from tests.weight_update.analysis.steps import MOMENTUM, REDUCED
from tf_wu_shard.inspection.recognition.update_values import UpdateValues
from tf_wu_shard.weight_update.analysis.analyze import analyze


def written(text: str, keys: tuple[str, ...] = ("w", "m")) -> dict[str, list[str]]:
    """What the one update of a step writes, as text: g is its gradient, w' what w becomes."""
    view = view_of(REDUCED + text, variables=dict.fromkeys(keys, (4,)))
    (update,) = analyze(view, DIALECT).updates
    values = UpdateValues(update, view)
    algebra = values.algebra
    names = {algebra.only(old) or 0: key for key, old in values.old.items()}
    names |= {algebra.only(new) or 0: f"{key}'" for key, new in values.new.items()}
    names[values.gradient] = "g"
    found = {**values.written, **values.beside}
    return {key: [algebra.text(v, names, signed=True) for v in vs] for key, vs in found.items()}


def test_a_slot_is_another_thing_once_it_was_written() -> None:
    assert written(MOMENTUM) == {"w": ["-m' + w"], "m": ["g + m"]}


def test_an_assigned_value_is_the_slots_new_value_wherever_it_is_used() -> None:
    text = """
    old# = ReadVariableOp(m#) [4] @d#
    new# = AddV2(old#, sum#) [4] @d#
    put# = AssignVariableOp(m#, new#) @d#
    step# = AssignSubVariableOp(w#, new#) @d#
    """
    assert written(text) == {"w": ["-m' + w"], "m": ["g + m"]}


def test_a_second_write_of_the_weight_begins_with_what_the_first_one_made() -> None:
    text = """
    rate = Const() {value=0.5} []
    old# = ReadVariableOp(w#) [4] @d#
    less# = Mul(old#, rate) [4] @d#
    decay# = AssignSubVariableOp(w#, less#) @d#
    step# = AssignSubVariableOp(w#, sum#) @d# ^decay#
    """
    assert written(text, ("w",)) == {"w": ["w", "-g + w"]}


def test_a_number_that_is_one_element_is_plain_and_left_out_of_the_text() -> None:
    text = """
    rate = Placeholder() []
    scaled# = Mul(sum#, rate) [4] @d#
    root# = Rsqrt(scaled#) [4] @d#
    step# = AssignSubVariableOp(w#, root#) @d#
    """
    assert written(text, ("w",)) == {"w": ["-g^-0.5 + w"]}


def test_what_no_rule_names_is_a_thing_that_is_no_gradient() -> None:
    text = """
    odd# = Tanh(sum#) [4] @d#
    step# = AssignSubVariableOp(w#, odd#) @d#
    """
    (said,) = written(text, ("w",))["w"]
    assert "g" not in said and said.startswith("-?")
