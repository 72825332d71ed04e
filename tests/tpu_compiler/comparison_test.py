"""Two steps side by side: one that does not fit says so, one that is the same is compiled once."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

from tf_wu_shard.tpu_compiler import children, comparison
from tf_wu_shard.tpu_compiler.comparison import Compiled, StepError, compare
from tf_wu_shard.tpu_compiler.figures import Figures, Memory
from tf_wu_shard.tpu_compiler.settings import Settings

SETTINGS = Settings(topology="v5e:2x2", model="mlp")


def figures(**collectives: int) -> Figures:
    counts = {name.replace("_", "-"): count for name, count in collectives.items()}
    return Figures(Memory(1, 2, 3, 4), 10, {}, 0, 0, counts, {}, None, None)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> dict[str, Any]:
    """What comes of each mode; a test changes it. Compiled modes are listed."""
    found: dict[str, Any] = {"replicated": "a", "sharded": "b", "errors": {}, "done": []}

    def trace(settings: Settings, mode: str, folder: pathlib.Path) -> dict[str, Any]:
        return {"said": mode, "batch": 2, "fingerprint": found[mode], "seconds": 1.0}

    def compile_(settings: Any, mode: str, folder: pathlib.Path, traced: Any) -> Compiled:
        found["done"].append(mode)
        (folder / f"{mode}.hlo").write_text(mode, encoding="utf-8")
        error = found["errors"].get(mode, "")
        return Compiled(None if error else figures(), {}, error, {"trace": 1.0, "compile": 2.0})

    monkeypatch.setattr(children, "check_compiler", lambda: None)
    monkeypatch.setattr(comparison, "_trace", trace)
    monkeypatch.setattr(comparison, "_compile", compile_)
    return found


def test_a_step_that_is_the_same_is_compiled_once(
    compiled: dict[str, Any], tmp_path: pathlib.Path
) -> None:
    compiled["sharded"] = "a"
    lines: list[str] = []
    found = compare(SETTINGS, tmp_path, lines.append)
    assert compiled["done"] == ["replicated"] and "nothing was sharded" in lines[-1]
    assert found.sharded.figures == found.replicated.figures
    assert found.sharded.seconds["compile"] == 0.0
    assert (tmp_path / "sharded.hlo").read_text(encoding="utf-8") == "replicated"


def test_a_step_that_does_not_compile_is_told_beside_the_other(
    compiled: dict[str, Any], tmp_path: pathlib.Path
) -> None:
    compiled["errors"] = {"replicated": "it does not fit"}
    found = json.loads(compare(SETTINGS, tmp_path, lambda line: None).to_json())
    assert found["replicated"]["error"] == "it does not fit" and found["replicas"] == 4
    assert "error" not in found["sharded"] and found["pass"] == "sharded"


def test_where_neither_compiles_that_is_an_error(
    compiled: dict[str, Any], tmp_path: pathlib.Path
) -> None:
    compiled["errors"] = {"replicated": "one", "sharded": "other"}
    with pytest.raises(StepError, match="other"):
        compare(SETTINGS, tmp_path, lambda line: None)


def test_reduce_scatters_that_are_gone_were_turned_back() -> None:
    asked = {"reduce-scatter": 4, "all-gather": 4}
    for left, turned in ((figures(), 4), (figures(reduce_scatter=3), 1), (None, 0)):
        assert Compiled(left, asked, "", {}).turned_back == turned
    # The compiler may make some of its own.
    assert Compiled(figures(reduce_scatter=9), asked, "", {}).turned_back == 0
