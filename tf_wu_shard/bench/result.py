"""What a benchmark found: plain numbers, as JSON and as a table."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from tf_wu_shard.bench import formulas
from tf_wu_shard.bench.settings import Settings

_MB = 1e6


@dataclasses.dataclass(frozen=True)
class BeforeAfter:
    """Bytes of the unsharded and of the sharded mode."""

    unsharded: int
    sharded: int


@dataclasses.dataclass(frozen=True)
class StepTimes:
    """Seconds of a step, by mode."""

    unsharded: float
    sharded: float
    no_update: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """One benchmark run's figures.

    Attributes:
        settings: What was measured.
        parameter_bytes: Of the trained weights, on one replica.
        step_s: Median seconds of a step.
        first_step_s: Seconds of the first step: its trace, the pass included, what graph optimizers
            and XLA's compilations take, and the step.
        ratio_of_pairs: Median over the rounds of sharded over unsharded.
        slot_bytes_per_replica: Of the optimizer's slots; the sharded figure is the report's.
        rss_growth_bytes: Peak resident memory of each mode's process over its whole life, minus
            that after the imports.
        max_abs_weight_diff: Over all weights of all replicas, after the same number of steps.
        pass_ms: Time in the pass.
        trace_ms: Time of the trace that the pass sat in, the pass included.
        copy_bytes_per_s: Median speed of a plain copy, bytes read plus bytes written.
        bytes_moved: What an update reads and writes; see `formulas.bytes_moved`.
    """

    settings: Settings
    parameter_bytes: int
    step_s: StepTimes
    first_step_s: StepTimes
    ratio_of_pairs: float
    slot_bytes_per_replica: BeforeAfter
    rss_growth_bytes: BeforeAfter
    max_abs_weight_diff: float
    pass_ms: float
    trace_ms: float
    copy_bytes_per_s: float
    bytes_moved: int

    @property
    def ratio(self) -> float:
        """Sharded over unsharded, of the medians."""
        return self.step_s.sharded / self.step_s.unsharded

    @property
    def limit_s(self) -> float:
        """A sharded step whose update runs at this machine's copy speed, seconds."""
        return formulas.limit_s(self.step_s.no_update, self.bytes_moved, self.copy_bytes_per_s)

    @property
    def over_limit(self) -> float:
        """The sharded step over its limit."""
        return self.step_s.sharded / self.limit_s

    @property
    def compilation_s(self) -> dict[str, float]:
        """What the first step takes beside its trace and a step, of two modes, seconds.

        That is what graph optimizers and XLA's compilations take. An unsharded step is taken to be
        traced as fast as the sharded one without the pass.
        """
        trace, in_pass, first = self.trace_ms / 1e3, self.pass_ms / 1e3, self.first_step_s
        unsharded = first.unsharded - (trace - in_pass) - self.step_s.unsharded
        sharded = first.sharded - trace - self.step_s.sharded
        return {"unsharded": max(0.0, unsharded), "sharded": max(0.0, sharded)}

    def to_dict(self) -> dict[str, Any]:
        """Returns all fields and derived figures, as JSON knows them."""
        derived = ("ratio", "limit_s", "over_limit", "compilation_s")
        return dataclasses.asdict(self) | {name: getattr(self, name) for name in derived}

    def to_json(self) -> str:
        """Returns `to_dict` as indented JSON text."""
        return json.dumps(self.to_dict(), indent=2) + "\n"

    def __str__(self) -> str:
        """The table that the command prints."""
        return "\n".join([self._title(), "", *self._compared(), "", *self._single()])

    def _title(self) -> str:
        settings = self.settings
        sizes = "".join(f" {name} {size}" for name, size in settings.model_sizes.items())
        return (
            f"{settings.model}{sizes}, {self.parameter_bytes / _MB:.1f} MB of weights,"
            f" {settings.optimizer}, {settings.strategy}, {settings.replicas} replicas,"
            f" batch {settings.batch} a replica, {settings.steps} steps of each"
        )

    def _compared(self) -> list[str]:
        first, slots, memory = self.first_step_s, self.slot_bytes_per_replica, self.rss_growth_bytes
        rows = [
            ("step (median)", *_seconds(self.step_s), self.ratio),
            ("first step", *_seconds(first), first.sharded / first.unsharded),
            ("slots a replica", *_megabytes(slots), _share(slots)),
            ("memory growth", *_megabytes(memory), _share(memory)),
        ]
        lines = [f"{'':<18}{'unsharded':>14}{'sharded':>14}{'ratio':>8}"]
        for name, unsharded, sharded, ratio in rows:
            shown = "-" if ratio is None else f"{ratio:.3f}"
            lines.append(f"{name:<18}{unsharded:>14}{sharded:>14}{shown:>8}")
        return lines

    def _single(self) -> list[str]:
        in_pass = f"{self.pass_ms:.1f} ms, {self.pass_ms / self.trace_ms:.1%}"
        compiling = self.compilation_s
        return [
            f"step, no update    {self.step_s.no_update:.4f} s",
            f"ratio of pairs     {self.ratio_of_pairs:.3f} (median over the rounds)",
            f"weights differ by  {self.max_abs_weight_diff:.3g} at most",
            f"pass               {in_pass} of the {self.trace_ms:.1f} ms trace it sits in",
            f"compilation        {compiling['sharded']:.3f} s, unsharded"
            f" {compiling['unsharded']:.3f} s: the first step beside its trace and a step",
            f"copy speed         {self.copy_bytes_per_s / 1e9:.2f} GB/s, read plus written",
            f"limit              {self.limit_s:.4f} s: no update, then"
            f" {self.bytes_moved / _MB:.1f} MB moved at the copy speed",
            f"over the limit     {self.over_limit:.3f} times",
        ]


def _seconds(times: StepTimes) -> tuple[str, str]:
    return f"{times.unsharded:.4f} s", f"{times.sharded:.4f} s"


def _megabytes(pair: BeforeAfter) -> tuple[str, str]:
    return f"{pair.unsharded / _MB:.2f} MB", f"{pair.sharded / _MB:.2f} MB"


def _share(pair: BeforeAfter) -> float | None:
    """SGD has no slots, and nothing is no share of nothing."""
    return pair.sharded / pair.unsharded if pair.unsharded else None
