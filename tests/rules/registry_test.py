"""Where a result lies follows from where its operands lie, or is refused with a reason."""

from __future__ import annotations

import pytest

from tests.rules.placing import CUT, SCALAR, placed
from tf_wu_shard import refusals
from tf_wu_shard.placement import Cut
from tf_wu_shard.rules import registry, shapes
from tf_wu_shard.rules.registry import Family, Rule, family_of, op_types


def test_an_op_that_no_table_names_is_refused_never_guessed() -> None:
    assert placed("Cumsum", CUT) == "no rule for Cumsum (op)"
    assert family_of("Cumsum") is None


def test_an_unknown_shape_is_refused() -> None:
    reason = "the shape of its result is not known when the step is traced (op)"
    assert placed("Mul", CUT, shape=None) == reason
    assert placed("Reshape", CUT, SCALAR, shape=None) == reason


def test_an_op_type_has_one_rule() -> None:
    with pytest.raises(ValueError, match="Mul has a rule already"):
        registry.register(Rule(Family.RELABEL, shapes.relabelled), "Mul")
    assert family_of("Mul") is Family.ELEMENTWISE


def test_every_op_type_on_elements_has_a_family() -> None:
    assert {family_of(t) for t in op_types(Cut.ELEMENTS)} == set(Family)
    assert list(op_types(Cut.ROWS)) == sorted(set(op_types(Cut.ROWS)))


def test_an_operand_of_unknown_shape_is_refused_by_its_name() -> None:
    reason = refusals.Updates.OPERAND_SHAPE_UNKNOWN.at("operand_1")
    assert placed("Mul", CUT, None) == str(reason)
