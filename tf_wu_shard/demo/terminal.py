"""What the demo says on a terminal: a progress bar per run, then figures and verdict per task."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from tf_wu_shard.demo import agreement, cluster_figures
from tf_wu_shard.demo.comparison import Comparison
from tf_wu_shard.demo.runs import SCORES, TITLES, Mode, reordering, replica_word
from tf_wu_shard.report.quantities import byte_text, second_text

_BAR = 28
_LOSS_LINES = 6
_TITLE = max(map(len, TITLES.values()))


class ProgressBar:
    """Draws one line per run; on a terminal it moves, elsewhere only its last state is written."""

    def __init__(self, stream: TextIO, moves: bool = True) -> None:
        """Starts with no run.

        Args:
            stream: Where to draw.
            moves: Whether lines may move on a terminal; those of runs side by side would not do.
        """
        self._stream = stream
        self._moves = moves and stream.isatty()
        # Of each run, its number of steps and when it began.
        self._runs: dict[tuple[str, Mode], tuple[int, float]] = {}

    def __call__(self, task: str, mode: Mode, message: dict[str, float]) -> None:
        """Takes one message of a run (see `processes.Progress`)."""
        if "steps" in message:
            self._runs[task, mode] = int(message["steps"]), time.monotonic()
            self._draw(task, mode, 0, "tracing")
            return
        step = int(message["step"])
        note = f"loss {message['loss']:.4f}   {time.monotonic() - self._runs[task, mode][1]:.0f} s"
        self._draw(task, mode, step, note)

    def _draw(self, task: str, mode: Mode, step: int, note: str) -> None:
        steps, _ = self._runs[task, mode]
        last = step == steps
        if not (self._moves or last):
            return
        full = _BAR * step // steps
        bar = "#" * full + "." * (_BAR - full)
        line = f"{TITLES[task]:<{_TITLE}} {mode.value:<10} [{bar}] {step:>3}/{steps}  {note}"
        start = "\r" if self._moves else ""
        self._stream.write(f"{start}{line:<94}".rstrip() + ("\n" if last else ""))
        self._stream.flush()


def say(line: str) -> None:
    """Says what a part that draws no bar is at."""
    print(f"TPU compiler: {line}", file=sys.stderr, flush=True)


def summary(comparison: Comparison) -> str:
    """Returns a task's figures: losses side by side, the verdict, memory, time, agreement."""
    unsharded, sharded = comparison.unsharded, comparison.sharded
    replica = replica_word(comparison.task)
    title = (
        f"{TITLES[comparison.task]}: {unsharded.parameters:,} parameters,"
        f" {comparison.replicas} {replica}s, {len(unsharded.losses)} steps"
    )
    parts = [title, "-" * len(title), _losses(comparison)]
    parts.append(
        f"{SCORES[comparison.task]}   {unsharded.held_out:.4f} unsharded,"
        f" {sharded.held_out:.4f} sharded"
    )
    if sharded.sharding is not None:
        before, after = sharded.sharding.slot_bytes_unsharded, sharded.sharding.slot_bytes_sharded
        parts += ["", sharded.sharding.text, ""]
        slots = f"slots per {replica}"
        parts.append(f"{slots:<22}{byte_text(before)} -> {byte_text(after)}")
    parts.append(
        f"peak process memory   {byte_text(unsharded.peak_bytes)}"
        f" -> {byte_text(sharded.peak_bytes)}"
    )
    ratio = sharded.median_step_s / unsharded.median_step_s
    parts.append(
        f"median step           {second_text(unsharded.median_step_s)}"
        f" -> {second_text(sharded.median_step_s)}   (x {ratio:.2f})"
    )
    parts += cluster_figures.lines(comparison)
    return "\n".join([*parts, "", _agreements(comparison)])


def _losses(comparison: Comparison) -> str:
    """Some steps' losses side by side, the first and the last among them."""
    unsharded, sharded = comparison.unsharded.losses, comparison.sharded.losses
    last = len(unsharded) - 1
    chosen = sorted({round(last * index / (_LOSS_LINES - 1)) for index in range(_LOSS_LINES)})
    lines = [f"{'step':>6} {'unsharded':>12} {'sharded':>12} {'difference':>12}"]
    for step in chosen:
        before, after = unsharded[step], sharded[step]
        lines.append(f"{step + 1:>6} {before:>12.6f} {after:>12.6f} {after - before:>12.1e}")
    return "\n".join(lines)


def _agreements(comparison: Comparison) -> str:
    lines = [
        "sharded against unsharded, relative to the largest element of the worst tensor; allowed is"
        f"\n{agreement.FACTOR} times what the unsharded run itself moves when only its order of"
        f" summation changes\n({reordering(comparison.task)}), and at least {agreement.FLOOR:.0e}"
    ]
    for one in comparison.agreements:
        verdict = "agree" if one.holds else f"DISAGREE in {one.worst}"
        lines.append(
            f"  {one.quantity:<8} differ by {one.difference:.1e}   moved by {one.moved:.1e}"
            f"   allowed {one.limit:.1e}   {verdict}"
        )
    return "\n".join(lines)
