"""Runs the launches of a program, one after the other, and reads what they left."""

from __future__ import annotations

import json
import os
import pathlib
import re
import sys
from collections.abc import Callable

from tools.gpu import process
from tools.gpu.launches import Launch, Outcome, Setting, job_of, launches_of

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Kernels that do not fuse, and round otherwise, by what they see around an operation.
_COMPARED = {"TF_ENABLE_ONEDNN_OPTS": "0"}
# NCCL names its version when it is first used, and nothing else.
_UNLESS_SET = {"NCCL_DEBUG": "VERSION", "TF_CPP_MIN_LOG_LEVEL": "1"}
_NO_GPUS = {"CUDA_VISIBLE_DEVICES": ""}


def run_all(
    program: str, setting: Setting, folder: pathlib.Path, say: Callable[[str], None]
) -> tuple[Outcome, ...]:
    """Runs a program's launches.

    Args:
        program: A name in `programs.PROGRAMS`.
        setting: What holds for all of them.
        folder: Where launches whose results are compared leave them; see `left_in`.
        say: Called with a line before each of them.

    Returns:
        What came of each. After one that failed, others of its mode are not run: they would fail
        as it did, and where it hung that takes as long again.
    """
    found: list[Outcome] = []
    launches = launches_of(program, setting.pairs)
    for number, launch in enumerate(launches, 1):
        before = [one for one in found if one.trouble and one.launch.mode is launch.mode]
        say(f"{program}, {number} of {len(launches)}: {launch.mode.value}")
        if before:
            reason = "not run, as a launch of its mode failed before it"
            found.append(Outcome(launch, reason, was_run=False))
        else:
            found.append(_run(launch, setting, left_in(folder, launch)))
    return tuple(found)


def left_in(folder: pathlib.Path, launch: Launch) -> pathlib.Path:
    """Where below a program's folder a launch leaves its files; timed ones share theirs."""
    return folder / ("timed" if launch.timed else launch.mode.name.lower())


def environment_of(launch: Launch, setting: Setting) -> dict[str, str]:
    """All environment variables of a launch."""
    wanted = {} if launch.timed else _COMPARED
    if not setting.on_gpus:
        wanted = wanted | _NO_GPUS
    # Whoever wants to hear more of TensorFlow or NCCL may ask for it.
    return _UNLESS_SET | os.environ | wanted


def outcome_of(launch: Launch, ended: process.Ended, facts: str, limit_s: float) -> Outcome:
    """Reads how a launch ended.

    Args:
        launch: Which.
        ended: How its process ended.
        facts: What it left, JSON; "" where it left nothing.
        limit_s: The seconds that it had.
    """
    nccl = re.search(r"NCCL version (\S+)", f"{ended.printed}\n{ended.log}")
    trouble = ""
    if ended.status != 0 or not facts:
        trouble = f"{ended.described(limit_s)}; the last it said was {_last_word(ended.printed)}"
        if ended.last_log_lines:
            trouble += f"; its log ends with\n{ended.last_log_lines}"
        # A report is sent to others, whom nobody's folders concern.
        trouble = trouble.replace(str(pathlib.Path.home()), "~")
    return Outcome(
        launch,
        trouble,
        hung=ended.status is None,
        seconds=ended.seconds,
        facts={} if trouble else json.loads(facts),
        nccl=nccl[1] if nccl else "",
    )


def _last_word(printed: str) -> str:
    """What a launch said last of what it was at; libraries print other lines between."""
    words = [line for line in printed.splitlines() if line.startswith("{")]
    return words[-1] if words else "nothing: it had not imported TensorFlow yet"


def _run(launch: Launch, setting: Setting, folder: pathlib.Path) -> Outcome:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "facts.json"
    file.unlink(missing_ok=True)
    job = json.dumps(job_of(launch, setting, str(folder)))
    ended = process.run(
        [sys.executable, "-m", "tools.gpu.launch_run", job],
        environment=environment_of(launch, setting),
        folder=ROOT,
        limit_s=setting.limit_s,
    )
    facts = file.read_text(encoding="utf-8") if file.exists() else ""
    return outcome_of(launch, ended, facts, setting.limit_s)
