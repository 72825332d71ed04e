"""A comparison as the command prints it: memory, collectives, time, one column a step."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator

from tf_wu_shard.report.quantities import byte_text, second_text
from tf_wu_shard.tpu_compiler.chips import CHIPS
from tf_wu_shard.tpu_compiler.comparison import MODES, Comparison, Compiled
from tf_wu_shard.tpu_compiler.figures import Figures
from tf_wu_shard.tpu_compiler.scopes import Scope

_LABEL, _COLUMN = 34, 22

Row = tuple[str, tuple[str, ...]]


@dataclasses.dataclass(frozen=True)
class Part:
    """Rows that belong together.

    Attributes:
        title: Above them.
        rows: A label, and a text for each step in the order of `MODES`.
    """

    title: str
    rows: tuple[Row, ...]


def table_of(comparison: Comparison) -> str:
    """Returns the whole table, without a line break at its end."""
    lines = [title_of(comparison), "", _line("", MODES)]
    for part in parts_of(comparison):
        lines += [part.title, *(_line(f"  {label}", cells) for label, cells in part.rows), ""]
    return "\n".join([*lines, *remarks_of(comparison)])


def parts_of(comparison: Comparison) -> tuple[Part, ...]:
    """Returns the figures: memory, collectives, times."""
    return (
        Part("memory of a device", tuple(_memory(comparison))),
        Part(
            "collectives, asked for -> left by the compiler, bytes of a step",
            tuple(_collectives(comparison)),
        ),
        Part("estimated time of a step, collectives excluded", tuple(_times(comparison))),
    )


def title_of(comparison: Comparison) -> str:
    """Returns what was compiled, and for what."""
    settings = comparison.settings
    what = settings.model or settings.script
    optimizer = f", {settings.optimizer}" if settings.model else ""
    return (
        f"{what}{optimizer} on {settings.topology}, {comparison.replicas} replicas,"
        f" {comparison.batch or '?'} examples each; compiled ahead of time, never run"
    )


def _memory(comparison: Comparison) -> Iterator[Row]:
    chip = CHIPS[comparison.settings.slice.generation]
    for label, field in (
        ("arguments", "argument_bytes"),
        ("outputs", "output_bytes"),
        ("of them in place of arguments", "alias_bytes"),
        ("temporaries", "temp_bytes"),
        ("in use", "in_use"),
    ):
        show = functools.partial(_bytes, field)
        yield _figure_row(label, comparison, show)
    sides = [getattr(comparison, mode) for mode in MODES]
    yield f"of {byte_text(chip.hbm_bytes)}", tuple(map(_fit, sides))


def _fit(side: Compiled) -> str:
    """The compiler's word: it refuses a program that needs more memory than there is."""
    if side.figures is not None:
        return "fits"
    return "does not fit" if "RESOURCE_EXHAUSTED" in side.error else "-"


def _bytes(field: str, figures: Figures) -> str:
    return byte_text(getattr(figures.memory, field))


def _collectives(comparison: Comparison) -> Iterator[Row]:
    sides = [getattr(comparison, mode) for mode in MODES]
    kinds = dict.fromkeys(
        kind
        for side in sides
        for kind in (*side.requested, *(side.figures.collectives if side.figures else ()))
    )
    for kind in kinds:
        yield kind, tuple(_collective(side, kind) for side in sides)


def _collective(side: Compiled, kind: str) -> str:
    asked = side.requested.get(kind, 0)
    if side.figures is None:
        return f"{asked} -> ?"
    left = side.figures.collectives.get(kind, 0)
    size = byte_text(side.figures.collective_bytes.get(kind, 0))
    return f"{asked} -> {left}, {size}" if asked or left else "-"


def _times(comparison: Comparison) -> Iterator[Row]:
    seconds = CHIPS[comparison.settings.slice.generation].cycles_per_second
    for scope in Scope:
        show = functools.partial(_scope_time, scope, seconds)
        yield _figure_row(scope.value, comparison, show)
    yield _figure_row("in all", comparison, lambda f: _time(f.cycles, seconds))
    yield _figure_row(
        "copies without an estimate", comparison, lambda f: byte_text(f.uncosted_copy_bytes)
    )
    yield _figure_row("in all, with these copies", comparison, _pessimistic)


def _scope_time(scope: Scope, per_second: float | None, figures: Figures) -> str:
    return _time(figures.scope_cycles[scope.value], per_second)


def _time(cycles: int, per_second: float | None) -> str:
    if per_second is None:
        return f"{cycles / 1e6:.3f} Mcycles"
    return second_text(cycles / per_second)


def _pessimistic(figures: Figures) -> str:
    time = figures.pessimistic_milliseconds
    return "-" if time is None else second_text(time / 1e3)


def remarks_of(comparison: Comparison) -> Iterator[str]:
    """Yields what failed, what this pass says and what libtpu's own one did."""
    replicated, sharded = comparison.replicated, comparison.sharded
    for mode, side in zip(MODES, (replicated, sharded), strict=True):
        if side.error:
            yield f"{mode}: {side.error}"
        lost = side.turned_back
        if lost:
            yield (
                f"{mode}: the compiler turned {lost} of {side.requested['reduce-scatter']}"
                " reduce-scatters back into all-reduces"
            )
    yield f"this pass: {comparison.said or 'nothing to say'}"
    if replicated.figures is not None:
        scattered = replicated.figures.collectives.get("reduce-scatter", 0)
        yield "libtpu's own pass: " + (
            f"made {scattered} reduce-scatters of the replicated step's all-reduces"
            if scattered
            else "left the replicated step's update whole on every replica"
        )


def _figure_row(label: str, comparison: Comparison, show: Callable[[Figures], str]) -> Row:
    figures = [getattr(comparison, mode).figures for mode in MODES]
    return label, tuple("-" if f is None else show(f) for f in figures)


def _line(label: str, cells: tuple[str, ...]) -> str:
    return f"{label:<{_LABEL}}" + "".join(f"{cell:>{_COLUMN}}" for cell in cells)
