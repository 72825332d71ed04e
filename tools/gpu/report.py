"""What the check found, as the JSON that is sent and as the table on a terminal."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from tf_wu_shard.report.quantities import byte_text, second_text
from tools.gpu.judgement import Compared, Result, Timed
from tools.gpu.launches import Outcome, Setting

# Changes when a reader of reports would have to.
FORMAT = 1

_GAP = "   "


@dataclasses.dataclass(frozen=True)
class Check:
    """All that the check found.

    Attributes:
        machine: See `machine.look`.
        setting: What held for all launches.
        results: Per program.
        outcomes: Of all launches of these.
        is_whole: Whether nothing is to come.
    """

    machine: Mapping[str, Any]
    setting: Setting
    results: tuple[Result, ...]
    outcomes: tuple[Outcome, ...]
    is_whole: bool

    @property
    def failures(self) -> tuple[str, ...]:
        """What is wrong."""
        return tuple(text for result in self.results for text in result.failures)

    @property
    def verdict(self) -> str:
        """`passed`, `failed` or, where something is to come, `not finished`."""
        if self.failures:
            return "failed"
        return "passed" if self.is_whole else "not finished"

    def to_json(self) -> str:
        """Everything, as indented JSON text; numbers that JSON has not are strings."""
        nccl = sorted({one.nccl for one in self.outcomes} - {""})
        found = {
            "format": FORMAT,
            "verdict": self.verdict,
            "failures": self.failures,
            "machine": dict(self.machine) | {"nccl": nccl},
            "setting": dataclasses.asdict(self.setting),
            "programs": [_result(result) for result in self.results],
            "launches": [_outcome(outcome) for outcome in self.outcomes],
        }
        return json.dumps(_plain(found), indent=1, allow_nan=False) + "\n"

    def __str__(self) -> str:
        """The table, then notes, failures and the verdict."""
        lines = [self._title(), "", *_columns([_HEADINGS, *map(self._row, self.results)]), ""]
        for result in self.results:
            ops = ", ".join(f"{count} {kind}" for kind, count in result.collectives.items())
            if ops:
                lines.append(f"{result.program}: the sharded step has {ops}")
        lines += [f"note: {note}" for result in self.results for note in result.notes]
        lines += ["", *(f"FAILED {text}" for text in self.failures), f"verdict: {self.verdict}"]
        return "\n".join(lines)

    def _title(self) -> str:
        versions, gpus = self.machine["versions"], self.machine["gpus"]
        names = sorted({gpu.get("device_name", "unnamed") for gpu in gpus})
        where = f"GPUs ({', '.join(names)})" if self.setting.on_gpus else "logical CPU devices"
        return f"{self.setting.replicas} {where}, TensorFlow {versions['tensorflow']}"

    def _row(self, result: Result) -> tuple[str, ...]:
        peaks = [(one.unsharded_peak, one.sharded_peak) for one in result.memory]
        memory = _from_to(byte_text, *max(peaks)) if peaks else "-"
        if not self.setting.on_gpus:
            memory = "not on CPUs"
        return (
            result.program,
            _agreement_text(result.compared),
            *_time_texts(result.timed),
            memory,
            _from_to(byte_text, *result.slot_bytes) if result.slot_bytes else "-",
        )


_HEADINGS = ("program", "results", "step", "ratio (range)", "peak of a GPU", "slots a replica")


def _agreement_text(compared: Compared | None) -> str:
    if compared is None:
        return "not compared"
    if compared.exact:
        return "bit for bit"
    worst = max(compared.agreements, key=lambda one: one.difference / one.limit)
    return f"{worst.quantity} {worst.difference:.1e} apart, {worst.limit:.1e} allowed"


def _time_texts(timed: Timed | None) -> tuple[str, str]:
    if timed is None:
        return "not timed", "-"
    least, most = min(timed.ratios), max(timed.ratios)
    return (
        _from_to(second_text, timed.unsharded_s, timed.sharded_s),
        f"{timed.ratio:.2f} ({least:.2f} to {most:.2f})",
    )


def _from_to(text: Any, before: float, after: float) -> str:
    return f"{text(before)} -> {text(after)}"


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        _GAP.join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _result(result: Result) -> dict[str, Any]:
    found = dataclasses.asdict(result)
    if result.compared is not None:
        derived = [{"limit": one.limit, "holds": one.holds} for one in result.compared.agreements]
        pairs = zip(found["compared"]["agreements"], derived, strict=True)
        found["compared"]["agreements"] = [one | more for one, more in pairs]
    if result.timed is not None:
        found["timed"]["ratio"] = result.timed.ratio
    return found


def _outcome(outcome: Outcome) -> dict[str, Any]:
    launch = dataclasses.asdict(outcome.launch) | {"mode": outcome.launch.mode.value}
    return dataclasses.asdict(outcome) | {"launch": launch}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
