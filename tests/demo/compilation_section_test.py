"""The page's part on the TPU compiler: what is left and what was lost, or what to do."""

from __future__ import annotations

import dataclasses

from tests.demo.compilation_test import compilation
from tests.demo.samples import NOT_COMPILED
from tests.tpu_compiler.samples import WHOLE, compiled
from tf_wu_shard.demo.compilation_section import section


def test_a_step_whose_collectives_are_left_is_good() -> None:
    found = section(compilation())
    assert compilation().problems == () and found.good
    assert ("reduce-scatters left", "2", "of 2") in [dataclasses.astuple(t) for t in found.tiles]
    assert [bar.text for chart in found.bars for bar in chart.bars] == [
        *("830 MB", "830 MB"),
        *("4.00 ms", "2.00 ms"),
    ]
    memory, collectives, times, remarks = found.tables
    assert memory.columns == ("", "replicated", "sharded")
    assert ("all-reduce", "180 -> 3, 1.00 kB", "-") in collectives.rows
    assert ("in all", "4.00 ms", "2.00 ms") in times.rows
    assert ("this pass: sharded 3 of 4 variables",) in remarks.rows


def test_where_nothing_was_compiled_it_says_what_is_missing() -> None:
    found = section(NOT_COMPILED)
    assert not found.good and found.verdict == "not compiled: the TPU compiler is not installed"
    assert found.text == "mlp for v5e:2x2" and not (found.tiles or found.bars or found.tables)


def test_where_one_step_does_not_compile_nothing_is_drawn_of_the_other() -> None:
    found = section(compilation(compiled(None, "no room", reduce_scatter=2)))
    assert found.bars == () and "no room" in found.verdict
    assert [dataclasses.astuple(tile) for tile in found.tiles] == [
        ("reduce-scatters left", "?", "of 2")
    ]


def test_a_step_in_which_nothing_was_cut_asks_for_nothing() -> None:
    found = section(compilation(WHOLE))
    assert not any(tile.label.endswith(" left") for tile in found.tiles)
