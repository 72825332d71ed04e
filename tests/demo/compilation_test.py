"""Claims about demo/compilation.py and its section: what a compile shows, what it may lack."""

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
