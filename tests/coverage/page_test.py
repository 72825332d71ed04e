"""docs/coverage.md has every optimizer and feature, and says what trainings find."""

from __future__ import annotations

import functools

import pytest

from tools.coverage.features import FEATURES
from tools.coverage.processes import cells_of
from tools.coverage.rows import ROWS, class_name, keras_classes, legacy_classes, v1_classes
from tools.coverage.table import DIALECTS, Matrix, parsed, rendered
from tools.coverage.verdict import WRONG
from tools.coverage_matrix import PAGE, differences

# One of each verdict, under both dialects.
SAMPLE = (
    *(("adam", "plain"), ("adam", "accumulation"), ("muon", "plain"), ("lamb", "weight_decay")),
    *(
        ("sgd", "embedding"),
        ("tf_keras_legacy_adam", "plain"),
        ("loss_scale_of_adam", "embedding"),
    ),
    *(("v1_adagrad", "plain"), ("v1_adagrad", "ema")),
)

# It hands gradients to parameter servers, which no replicated training has.
_NOT_REPLICATED = {"tf.compat.v1.train.SyncReplicasOptimizer"}


@functools.cache
def page() -> Matrix:
    return parsed(PAGE.read_text(encoding="utf-8"))


def test_every_optimizer_class_of_keras_has_a_row() -> None:
    missing = keras_classes() - {*page().classes.values()}
    assert not missing, f"give them rows in tools/coverage/rows.py and make {PAGE.name} anew"


def test_every_optimizer_class_of_tf_keras_has_a_row() -> None:
    assert legacy_classes() <= {*page().classes.values()}


def test_every_optimizer_class_of_tensorflow_1_has_a_row() -> None:
    assert v1_classes() - _NOT_REPLICATED <= {*page().classes.values()}


def test_the_page_has_the_rows_and_columns_of_the_matrix() -> None:
    assert page().classes == {row: class_name(row) for row in ROWS}
    assert {*page().cells} == {
        (dialect, row, feature) for dialect in DIALECTS for row in ROWS for feature in FEATURES
    }


def test_the_page_is_as_it_would_be_written() -> None:
    assert rendered(page()) == PAGE.read_text(encoding="utf-8")


def test_nothing_on_the_page_is_wrong() -> None:
    assert not [key for key, cell in page().cells.items() if cell.text.startswith(WRONG)]


@pytest.mark.slow
def test_a_sample_of_the_cells_is_what_trainings_find() -> None:
    found = cells_of(SAMPLE)
    assert len(found) == len(SAMPLE) * len(DIALECTS)
    assert differences(page(), found) == []


@pytest.mark.slow
def test_every_cell_is_what_trainings_find() -> None:
    found = cells_of([(row, feature) for row in ROWS for feature in FEATURES])
    assert {*found} == {*page().cells}
    assert differences(page(), found) == []
