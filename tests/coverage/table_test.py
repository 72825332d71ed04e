"""The page of the coverage matrix is read back as it was written."""

from __future__ import annotations

import pytest

from tools.coverage.features import FEATURES
from tools.coverage.table import DIALECTS, Cell, Matrix, parsed, rendered
from tools.coverage_matrix import differences

CELLS = {
    (dialect, row, feature): Cell("exact")
    for dialect in DIALECTS
    for row in ("adam", "muon")
    for feature in FEATURES
}
MATRIX = Matrix(
    {"adam": "keras.optimizers.Adam", "muon": "keras.optimizers.Muon"},
    CELLS
    | {
        ("mirrored", "muon", "plain"): Cell("alone", ("no rule (Foo)",)),
        ("tpu", "adam", "embedding"): Cell("partly, within 5e-6", ("2. other", "no rule (Foo)")),
        ("tpu", "adam", "ema"): Cell("n/a: RuntimeError"),
        ("tpu", "muon", "ema"): Cell("-"),
    },
)


def test_cells_and_classes_come_back() -> None:
    assert parsed(rendered(MATRIX)) == MATRIX


def test_a_note_is_numbered_where_it_is_first_named() -> None:
    page = rendered(MATRIX)
    assert "| `muon` | `keras.optimizers.Muon` | alone (1) |" in page
    assert "| partly, within 5e-6 (2, 1) |" in page
    assert page.endswith("## Notes\n\n1. no rule (Foo)\n2. 2. other\n")


def test_a_row_made_with_other_features_is_refused() -> None:
    page = rendered(MATRIX).replace("| `keras.optimizers.Adam` | exact |", "| `a.B` |", 1)
    with pytest.raises(ValueError, match="cells for"):
        parsed(page)


def test_a_cell_without_its_note_is_refused() -> None:
    with pytest.raises(ValueError, match="no cell"):
        parsed(rendered(MATRIX).replace("alone (1)", "alone (7)"))


def test_a_cell_that_was_exact_by_luck_may_be_rounded_as_the_plain_training_is() -> None:
    near, plain = Cell("within 5e-6"), ("tpu", "adam", "plain")
    clipped, other = ("tpu", "adam", "clipnorm"), ("mirrored", "adam", "clipnorm")
    page = Matrix(MATRIX.classes, CELLS | {plain: near})
    assert differences(page, {clipped: near, plain: Cell("exact")}) == []
    assert differences(page, {clipped: Cell("WRONG: exact")}) != []
    assert differences(page, {other: near}) == [
        "mirrored adam clipnorm: the page says exact, found within 5e-6"
    ]
