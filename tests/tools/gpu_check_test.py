"""The check for GPUs judges what its launches leave, tells hangs, and runs on logical CPUs."""

from __future__ import annotations

import json
import pathlib
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from tools import gpu_check
from tools.gpu import machine, process, running
from tools.gpu.judgement import BY_NCCL, BY_RING, Result, Trained, judged
from tools.gpu.launches import Launch, Mode, Outcome, Setting, launches_of
from tools.gpu.programs import PROGRAMS, reordered
from tools.gpu.report import Check

CPUS = Setting(replicas=2, on_gpus=False, warmup_steps=1, pairs=2)
GPUS = Setting(replicas=2, on_gpus=True, warmup_steps=1, pairs=2)
REPORT = {
    "variables": [{"name": "dense/kernel"}],
    "share": 0.98,
    "slot_bytes_per_replica": {"unsharded": 8_000_000, "sharded": 4_000_000},
    "emitted": {"reduce_scatter": 1},
}
MACHINE = {
    "versions": {"tensorflow": "2.21.0"},
    "gpus": [{"device_name": "A GPU"}] * 2,
    "nvidia_smi": "index, name\n0, A GPU\n1, A GPU",
}

Facts = dict[str, Any]
Change = Callable[[Launch, Facts], None]


def facts_of(launch: Launch, setting: Setting = CPUS) -> Facts:
    """What a launch says that goes well; a sharded one takes half the time and less memory."""
    sharded = launch.mode is Mode.SHARDED
    devices = ["GPU:0", "GPU:1"] if setting.on_gpus else []
    op, hint = (BY_NCCL, "nccl") if setting.on_gpus else (BY_RING, "ring")
    step = {"function": "step", "op": op, "hint": hint, "count": 1}
    return {
        "losses": [1.0, 0.5],
        "step_s": [9.0, 0.1 if sharded else 0.2],
        "memory": [{"device": one, "current": 5, "peak": 10 - sharded} for one in devices],
        "replicas": ["same"] * setting.replicas,
        "slots": "same",
        "collectives": [{**step, "device": one} for one in devices or ["CPU:0", "CPU:1"]],
        "reports": [REPORT] if sharded else [],
    }


def unchanged(launch: Launch, facts: Facts) -> None:
    """Everything goes well."""


def moved_by(amounts: Mapping[Mode, float]) -> Callable[[Mode], np.ndarray]:
    """Weights of launches, by how much their largest element, 1, is moved."""
    return lambda mode: np.array([1.0 + amounts.get(mode, 0.0), 0.5])


def result_of(
    program: str = "dense",
    setting: Setting = CPUS,
    change: Change = unchanged,
    moved: Mapping[Mode, float] | None = None,
) -> Result:
    """The judgement of launches that all come to their end."""
    weights = moved_by(moved or {})
    outcomes = []
    for launch in launches_of(program, setting.pairs):
        facts = facts_of(launch, setting)
        if (moved or {}).get(launch.mode):
            facts["replicas"] = [f"moved {launch.mode}"] * setting.replicas
        change(launch, facts)
        outcomes.append(Outcome(launch, facts=facts))
    trained = {
        one.launch.mode: Trained(
            one.facts, {"kernel": weights(one.launch.mode)}, {"momentum": np.ones(2)}
        )
        for one in outcomes
        if not one.launch.timed
    }
    return judged(program, setting, outcomes, trained)


def test_equal_runs_pass() -> None:
    result = result_of()
    assert result.compared is not None and result.compared.exact and result.failures == ()
    assert result.slot_bytes == (8_000_000, 4_000_000)
    assert result.collectives == {f"CPU {BY_RING}, ring": 2}


def test_with_two_replicas_a_bit_is_a_failure_that_names_the_tensor() -> None:
    # Far within the bound of rounding, which is 4e-6 as the baseline moves by 1e-6.
    moved = {Mode.SHARDED: 1e-7, Mode.REORDERED: 1e-6}
    (failure,) = result_of(moved=moved).failures
    assert "must have the unsharded one's bits" in failure and "in kernel" in failure


@pytest.mark.parametrize(("program", "replicas"), [("norms", 2), ("dense", 4)])
def test_sums_in_another_order_may_move_four_times_what_the_baseline_moves(
    program: str, replicas: int
) -> None:
    setting = Setting(replicas=replicas, on_gpus=False, warmup_steps=1)
    moved = {Mode.SHARDED: 3.9e-5, Mode.REORDERED: 1e-5}
    assert result_of(program, setting, moved=moved).failures == ()
    (failure,) = result_of(program, setting, moved=moved | {Mode.SHARDED: 4.1e-5}).failures
    assert failure.startswith(f"{program}: weights differ by 4.1e-05 in kernel")


def test_a_baseline_that_does_not_repeat_itself_asks_for_no_bits_and_is_noted() -> None:
    result = result_of(moved={Mode.SHARDED: 3e-5, Mode.REPEATED: 1e-5})
    assert result.failures == ()
    assert result.notes == ("dense: the unsharded run does not repeat itself bit for bit",)


def test_runs_with_other_variables_are_a_failure_and_no_crash() -> None:
    outcomes = [Outcome(launch, facts=facts_of(launch)) for launch in launches_of("dense", 1)]
    trained = {
        mode: Trained(facts_of(Launch("dense", mode)), {mode.name: np.ones(2)}, {}) for mode in Mode
    }
    (failure,) = judged("dense", CPUS, outcomes, trained).failures
    assert "the runs do not have the same weights" in failure


def test_replicas_that_come_apart_are_a_failure() -> None:
    def change(launch: Launch, facts: Facts) -> None:
        if launch.timed and launch.mode is Mode.SHARDED:
            facts["replicas"] = ["one", "another"]

    failures = result_of(change=change).failures
    assert failures == ("dense, sharded, timed: the replicas' weights have come apart",) * 2


def test_a_loss_that_is_not_finite_is_a_failure_and_stays_legible() -> None:
    def change(launch: Launch, facts: Facts) -> None:
        facts["losses"] = [1.0, float("nan")]

    result = result_of(change=change)
    assert "dense, sharded: a loss is not finite" in result.failures
    outcome = Outcome(Launch("dense", Mode.SHARDED), facts={"losses": [float("nan")]})
    written = json.loads(Check(MACHINE, CPUS, (result,), (outcome,), True).to_json())
    assert written["launches"][0]["facts"]["losses"] == ["nan"]
    assert written["verdict"] == "failed"


def test_a_ring_on_gpus_is_a_failure_as_it_is_not_what_was_to_be_tried() -> None:
    def change(launch: Launch, facts: Facts) -> None:
        for one in facts["collectives"]:
            one.update(op=BY_RING, hint="ring")

    assert result_of(setting=GPUS).failures == ()
    (failure,) = result_of(setting=GPUS, change=change).failures
    assert f"has no GPU {BY_NCCL}, nccl" in failure and f"it has GPU {BY_RING}, ring" in failure


def test_a_step_of_which_little_is_sharded_is_a_failure() -> None:
    def change(launch: Launch, facts: Facts) -> None:
        facts["reports"] = [REPORT | {"share": 0.1}] if facts["reports"] else []

    assert result_of(change=change).failures == ("dense: only 10% is sharded; the report says why",)


def test_ratios_are_those_of_pairs_without_the_warm_up() -> None:
    seconds = {Mode.UNSHARDED: iter((0.2, 0.4)), Mode.SHARDED: iter((0.1, 0.3))}

    def change(launch: Launch, facts: Facts) -> None:
        if launch.timed:
            facts["step_s"] = [9.0, next(seconds[launch.mode])]

    timed = result_of(change=change).timed
    assert timed is not None and timed.ratios == pytest.approx((0.5, 0.75))
    assert timed.ratio == pytest.approx(0.625)


def test_every_gpu_has_its_largest_peak() -> None:
    peaks = iter((10, 8, 12, 9))

    def change(launch: Launch, facts: Facts) -> None:
        if launch.timed:
            facts["memory"][1]["peak"] = next(peaks)

    first, second = result_of(setting=GPUS, change=change).memory
    assert (first.unsharded_peak, first.sharded_peak) == (10, 9)
    assert (second.device, second.unsharded_peak, second.sharded_peak) == ("GPU:1", 12, 9)


def test_a_hang_is_told_with_its_place_and_stops_its_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(launch: Launch, setting: Setting, folder: pathlib.Path) -> Outcome:
        ended = process.Ended(0, 1.0, "", "")
        if launch.mode is Mode.SHARDED:
            printed = '{"at": "building the model"}\n{"step": 3}\nNCCL version 2.21.5+cuda12.5\n'
            ended = process.Ended(None, 60.0, printed, f"{pathlib.Path.home()}/a.py waits")
        facts = json.dumps(facts_of(launch))
        return running.outcome_of(launch, ended, facts, setting.limit_s)

    monkeypatch.setattr(running, "_run", run)
    outcomes = running.run_all("dense", CPUS, pathlib.Path("unused"), lambda line: None)
    sharded = [one for one in outcomes if one.launch.mode is Mode.SHARDED]
    assert [one.was_run for one in sharded] == [True, False, False]
    assert sharded[0].hung and sharded[0].nccl == "2.21.5+cuda12.5"
    result = judged("dense", CPUS, outcomes, {})
    (failure,) = result.failures
    assert failure.startswith("dense, sharded: hung: it came to no end within 600 s and was killed")
    assert 'the last it said was {"step": 3}' in failure and "~/a.py waits" in failure
    assert result.compared is None and result.timed is None


def test_a_process_that_hangs_is_killed_and_one_that_fails_is_not_taken_for_it(
    tmp_path: pathlib.Path,
) -> None:
    def run(script: str, limit_s: float) -> process.Ended:
        command = ["sh", "-c", script]
        return process.run(command, environment={}, folder=tmp_path, limit_s=limit_s)

    hung = run("echo begun; exec sleep 60", 0.3)
    assert hung.status is None and hung.is_gone and hung.last_printed_line == "begun"
    assert hung.seconds < 30
    failed = run("echo why >&2; exit 3", 60)
    assert (failed.described(60), failed.last_log_lines) == ("ended with status 3", "why")
    # The signal of a crash, such as in a driver.
    crashed = run("kill -SEGV $$", 60)
    assert crashed.status == -signal.SIGSEGV and crashed.described(60) == "was ended by SIGSEGV"


def test_another_order_moves_no_example_to_another_step_and_none_of_the_first_replica() -> None:
    # Two full steps of three replicas with two examples each, and a step of five examples.
    moved = reordered(np.arange(17), replicas=3, batch=2)
    assert moved[:6].tolist() == [1, 0, 5, 4, 3, 2]
    assert moved[6:12].tolist() == [7, 6, 11, 10, 9, 8]
    assert moved[12:].tolist() == [12, 13, 14, 15, 16]


def test_baselines_come_first_and_timed_launches_take_turns() -> None:
    launches = launches_of("dense", 2)
    assert [one.mode for one in launches[:4]] == [*Mode]
    assert [one.mode for one in launches[4:]] == [Mode.UNSHARDED, Mode.SHARDED] * 2
    assert [one.timed for one in launches] == [False] * 4 + [True] * 4


def test_the_small_version_of_a_program_differs_in_sizes_alone() -> None:
    for program in PROGRAMS.values():
        small = program.in_size(tiny=True)
        assert {*program.tiny} <= {*program.shape, *program.inner}
        assert (small.model, small.optimizer, small.policy) == (
            program.model,
            program.optimizer,
            program.policy,
        )
        assert program.in_size(tiny=False) is program


def test_the_table_has_a_line_for_each_program_and_the_verdict() -> None:
    outcome = Outcome(Launch("dense", Mode.SHARDED), nccl="2.21.5")
    results = (result_of(setting=GPUS), result_of("norms", GPUS))
    check = Check(MACHINE, GPUS, results, (outcome,), is_whole=True)
    text = str(check)
    assert text.startswith("2 GPUs (A GPU), TensorFlow 2.21.0\n")
    assert "200 ms -> 100 ms   0.50 (0.50 to 0.50)   10 B -> 9 B" in text
    assert "8.00 MB -> 4.00 MB" in text and text.endswith("verdict: passed")
    written = json.loads(check.to_json())
    assert written["machine"]["nccl"] == ["2.21.5"]
    assert [one["program"] for one in written["programs"]] == ["dense", "norms"]
    assert "not on CPUs" in str(Check(MACHINE, CPUS, (result_of(),), (), is_whole=True))
    assert Check(MACHINE, CPUS, (result_of(),), (), is_whole=False).verdict == "not finished"


def test_without_two_gpus_it_says_what_to_do_and_exits_with_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    def look(gpus: int, driver: str) -> Callable[[bool], Mapping[str, Any]]:
        found = {**MACHINE, "gpus": [{}] * gpus, "nvidia_smi": driver}
        return lambda on_gpus: found

    output = tmp_path / "report.json"
    for gpus, driver, cure in ((1, "", "--logical-cpus 2"), (0, "name\nA\nB", "[and-cuda]")):
        monkeypatch.setattr(machine, "look", look(gpus, driver))
        assert gpu_check.main(["--output", str(output)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert f"TensorFlow has {gpus} GPUs here and 2 are needed" in line and cure in line
    assert not output.exists()
    monkeypatch.setattr(machine, "look", look(2, ""))
    assert gpu_check.main(["--gpus", "3"]) == 2
    assert "has 2 GPUs here and 3 are needed" in capsys.readouterr().err
    assert gpu_check.main(["--output", str(tmp_path / "none" / "report.json")]) == 2
    assert "--output cannot be written" in capsys.readouterr().err


@pytest.mark.slow
def test_on_logical_cpus_it_passes_and_writes_a_whole_report(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "report.json"
    sizes = ["--tiny", "--steps", "3", "--pairs", "1", "--only", "short_last_batch"]
    assert gpu_check.main(["--logical-cpus", "2", "--output", str(output), *sizes]) == 0
    assert capsys.readouterr().out.rstrip().endswith("open an issue with it")
    written = json.loads(output.read_text(encoding="utf-8"))
    assert written["verdict"] == "passed" and len(written["launches"]) == 6
    (program,) = written["programs"]
    assert program["compared"]["exact"] and program["compared"]["must_be_exact"]
    # The other order is one that sums notice; else the bound of rounding would be of nothing.
    assert all(one["moved"] > 0 for one in program["compared"]["agreements"])
    assert program["collectives"] and program["memory"] == []
    assert program["slot_bytes"][1] < 0.6 * program["slot_bytes"][0]
    assert written["machine"]["versions"]["python"] == sys.version.split()[0]
