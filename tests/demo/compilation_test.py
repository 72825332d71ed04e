"""Claims about demo/compilation.py and its section: what a compile shows, what it may lack."""

import dataclasses
import importlib.util
import pathlib

import pytest

from tests.demo.samples import NOT_COMPILED
from tests.tpu_compiler.samples import SHARDED, WHOLE, compared, compiled, figures
from tf_wu_shard.demo.compilation import Compilation, compile_step
from tf_wu_shard.demo.compilation_section import section
from tf_wu_shard.tpu_compiler.comparison import Compiled

TURNED = compiled(figures(3_000_000, 2.0, reduce_scatter=1, all_gather=2), reduce_scatter=2)


def compilation(sharded: Compiled = SHARDED) -> Compilation:
    return Compilation(NOT_COMPILED.settings, compared(WHOLE, sharded))


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


@pytest.mark.parametrize(
    ("sharded", "problem"),
    [
        (TURNED, "1 reduce-scatters turned back into all-reduces"),
        (WHOLE, "the flag was on and the step has no reduce-scatter"),
        (compiled(None, "no room", reduce_scatter=2), "no room"),
    ],
)
def test_what_is_lost_is_the_verdict(sharded: Compiled, problem: str) -> None:
    told = f"mlp on v5e:2x2: {problem}"
    assert compilation(sharded).problems == (told,)
    found = section(compilation(sharded))
    assert not found.good and found.verdict == told


def test_a_missing_compiler_is_no_problem_but_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    found = compile_step(True, tmp_path / "compiled", print)
    assert found.problems == () and found.compared is None
    assert "pip install 'tf-wu-shard[tpu-compile]'" in section(found).verdict


def test_the_quick_step_is_compiled_and_keeps_its_collectives(tmp_path: pathlib.Path) -> None:
    found = compile_step(True, tmp_path / "compiled", print)
    assert found.problems == ()
    assert section(found).good
    assert (tmp_path / "compiled" / "sharded.hlo").is_file()
