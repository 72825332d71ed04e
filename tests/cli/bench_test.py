"""`wu-shard bench` from the command line: the figures of a tiny run, and wrong usages."""

from __future__ import annotations

import json
import pathlib

import pytest

from tests.cli.command import wu_shard
from tf_wu_shard.cli import main as command_line

TINY = ("--replicas", "2", "--width", "64", "--depth", "2", "--steps", "2", "--warmup", "1")

KEYS = {
    "step_s",
    "first_step_s",
    "ratio",
    "slot_bytes_per_replica",
    "rss_growth_bytes",
    "max_abs_weight_diff",
    "pass_ms",
    "trace_ms",
    "copy_bytes_per_s",
    "bytes_moved",
    "limit_s",
    "over_limit",
    "compilation_s",
}


def test_a_tiny_run_prints_a_table_and_writes_every_figure(tmp_path: pathlib.Path) -> None:
    done = wu_shard("bench", *TINY, "--batch", "1", "--json", "figures.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))
    assert set(found) >= KEYS
    assert (
        set(found["step_s"]) == set(found["first_step_s"]) == {"unsharded", "sharded", "no_update"}
    )
    # It is traced first.
    assert found["first_step_s"]["sharded"] * 1e3 > found["trace_ms"]
    assert f"{found['step_s']['sharded']:.4f} s" in done.stdout
    parameter_bytes = 2 * (64 * 64 + 64) * 4
    assert found["bytes_moved"] == (2 + 10) * parameter_bytes
    # Two moments of every weight; the biases, 64 elements each, stay whole.
    assert found["slot_bytes_per_replica"] == {
        "unsharded": 2 * parameter_bytes,
        "sharded": 2 * parameter_bytes - 2 * 2 * (64 * 64 // 2) * 4,
    }
    assert found["max_abs_weight_diff"] == 0.0, "two replicas sum in the same order"
    assert 0 < found["pass_ms"] < found["trace_ms"]


@pytest.mark.slow
def test_a_tiny_cluster_trains_equal_weights_with_half_of_the_slots(
    tmp_path: pathlib.Path,
) -> None:
    of_workers = ("--strategy", "workers", "--launches", "1", "--json", "figures.json")
    done = wu_shard("bench", *TINY, *of_workers, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "weights of all launches: equal to the bit" in done.stdout
    found = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))
    (whole,), (own,) = found["unsharded"], found["sharded"]
    parameter_bytes = 2 * (64 * 64 + 64) * 4
    assert whole["parameter_bytes"] == own["parameter_bytes"] == parameter_bytes
    assert whole["slot_bytes"] == 2 * parameter_bytes
    assert own["slot_bytes"] == parameter_bytes
    assert whole["agreement_s"] is None and whole["rehearsals_s"] == []
    assert own["agreement_s"] > 0 and len(own["rehearsals_s"]) == 10
    assert "agreement" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--replicas", "1"), "replicas must be at least 2, not 1"),
        (("--strategy", "workers", "--launches", "0"), "launches must be at least 1, not 0"),
        (("--width", "0"), "width must be at least 1, not 0"),
        (("--json", "no/such/folder/file"), "cannot write no/such/folder/file: No such file"),
    ],
)
def test_an_argument_out_of_range_costs_one_line_and_status_2(
    arguments: tuple[str, ...],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command_line.main(["bench", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("wu-shard bench: error: ") and message in line


@pytest.mark.parametrize(
    "arguments", [("--optimizer", "lambada"), ("--strategy", "tpu"), ("--steps", "many")]
)
def test_an_unknown_name_is_the_parsers_error(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        command_line.main(["bench", *arguments])
    assert stopped.value.code == 2
    assert "invalid" in capsys.readouterr().err


def test_a_model_without_the_size_is_refused_by_name(tmp_path: pathlib.Path) -> None:
    done = wu_shard("bench", "--model", "conv", "--width", "8", cwd=tmp_path)
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith("wu-shard bench: error: model 'conv' has no argument 'width'")
