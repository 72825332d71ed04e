"""The demo's report page: what each comparison becomes as tiles, charts and tables."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tf_wu_shard.demo import agreement, cluster_figures, compilation_section
from tf_wu_shard.demo.comparison import Comparison
from tf_wu_shard.demo.compilation import Compilation
from tf_wu_shard.demo.runs import (
    ON_TPUS,
    ON_WORKERS,
    SCORES,
    TITLES,
    Run,
    reordering,
    replica_word,
    strategy_of,
)
from tf_wu_shard.report.charts import Bar, BarChart, LineChart, Series
from tf_wu_shard.report.html import Page, Section, Tile
from tf_wu_shard.report.quantities import byte_text, second_text
from tf_wu_shard.report.report import slot_label
from tf_wu_shard.report.tables import Table


def page(comparisons: Sequence[Comparison], compilation: Compilation) -> Page:
    """Returns the report of all tasks, and of what the TPU compiler said."""
    return Page(
        title="Weight-update sharding: the same training, sharded and not",
        text=(
            "Each model was trained by plain model.fit on logical CPU devices, or in a custom loop"
            " on workers that are processes on this machine, with the same seeds, weights and data;"
            " one run had the option weight_update_sharding on. Nothing else differs. Last, a train"
            " step was compiled for TPUs, sharded and not."
        ),
        sections=(
            *(_section(one) for one in comparisons),
            compilation_section.section(compilation),
        ),
    )


def _section(comparison: Comparison) -> Section:
    unsharded = comparison.unsharded
    sharding = comparison.sharded.sharding
    place = f"; replicas: {sharding.place}" if sharding is not None and sharding.place else ""
    return Section(
        title=TITLES[comparison.task],
        text=(
            f"{unsharded.parameters:,} parameters, {comparison.replicas}"
            f" {replica_word(comparison.task)}s, {len(unsharded.losses)} steps under"
            f" {strategy_of(comparison.task)}{place}"
        ),
        verdict="; ".join(comparison.problems) or "the sharded and the unsharded run agree",
        good=not comparison.problems,
        tiles=_tiles(comparison),
        lines=_curves(comparison),
        bars=_bars(comparison),
        tables=(
            _agreements(comparison),
            *cluster_figures.tables(comparison),
            *_sharding(comparison.sharded),
        ),
    )


def _tiles(comparison: Comparison) -> tuple[Tile, ...]:
    unsharded, sharded = comparison.unsharded, comparison.sharded
    replica = replica_word(comparison.task)
    tiles = []
    sharding = sharded.sharding
    if sharding is not None:
        before, after = sharding.slot_bytes_unsharded, sharding.slot_bytes_sharded
        tiles.append(
            Tile(
                "elements sharded",
                sharding.elements_sharded,
                f"{len(sharding.variables)} variables, {len(sharding.left_alone)} left alone",
            )
        )
        tiles.append(Tile(f"slots of a {replica}", byte_text(after), f"was {byte_text(before)}"))
        weights = sharding.weight_bytes_unsharded, sharding.weight_bytes_sharded
        if weights[0] != weights[1]:
            was, now = map(byte_text, weights)
            tiles.append(Tile(f"weights of a {replica}", now, f"was {was}"))
        tiles.append(
            Tile(
                "graph pass",
                second_text(sharding.pass_ms / 1000),
                f"of {second_text(sharding.trace_ms / 1000)} tracing",
            )
        )
    step = second_text(unsharded.median_step_s)
    tiles.append(Tile("step, median", second_text(sharded.median_step_s), f"was {step}"))
    tiles += cluster_figures.tiles(comparison)
    tiles.append(Tile("final loss", f"{sharded.losses[-1]:.4f}", f"was {unsharded.losses[-1]:.4f}"))
    tiles.append(
        Tile(SCORES[comparison.task], f"{sharded.held_out:.4g}", f"was {unsharded.held_out:.4g}")
    )
    return tuple(tiles)


def _curves(comparison: Comparison) -> tuple[LineChart, LineChart]:
    unsharded, reordered, sharded = (
        one.losses for one in (comparison.unsharded, comparison.reordered, comparison.sharded)
    )
    losses = LineChart(
        title="Loss of each step",
        x_label="step",
        note=_loss_note(comparison.task),
        series=(
            Series("unsharded", "baseline", unsharded),
            Series("sharded, on top", "sharded", sharded),
        ),
    )
    differences = LineChart(
        title="Largest difference of the losses so far",
        x_label="step",
        series=(
            Series("unsharded, summed in another order", "baseline", _drift(unsharded, reordered)),
            Series("sharded", "sharded", _drift(unsharded, sharded)),
        ),
        logarithmic=True,
        note="From the unsharded run, relative to its loss. A curve starts where they part.",
    )
    return losses, differences


def _loss_note(task: str) -> str:
    if task in ON_WORKERS:
        return "In the last step one worker has no example left, and its loss counts as 0."
    return "Of the first replica's examples, as Keras reports it there." if task in ON_TPUS else ""


def _drift(expected: Sequence[float], actual: Sequence[float]) -> tuple[float, ...]:
    """Returns the running maximum of the relative differences."""
    gaps = (abs(b - a) / abs(a) for a, b in zip(expected, actual, strict=True))
    return tuple(itertools.accumulate(gaps, max))


def _bars(comparison: Comparison) -> tuple[BarChart, ...]:
    unsharded, sharded = comparison.unsharded, comparison.sharded
    on_workers = comparison.task in ON_WORKERS
    charts = []
    if sharded.sharding is not None:
        slots = sharded.sharding.slot_bytes_unsharded, sharded.sharding.slot_bytes_sharded
        charts.append(
            BarChart(
                f"Optimizer slots of one {replica_word(comparison.task)}",
                _pair(*slots, *map(byte_text, slots)),
            )
        )
    times = unsharded.median_step_s, sharded.median_step_s
    charts.append(
        BarChart(
            "Time of a step, median",
            _pair(*times, *map(second_text, times)),
            note=(
                "Of the slowest worker. wu-shard bench launches several clusters in turn, and so"
                " measures better."
                if on_workers
                else "One run after the other. wu-shard bench takes turns, and so measures better."
            ),
        )
    )
    peaks = unsharded.peak_bytes, sharded.peak_bytes
    charts.append(
        BarChart(
            "Peak memory of the process",
            _pair(*peaks, *map(byte_text, peaks)),
            note=(
                "Of the largest worker; TensorFlow and the traced graph are most of it."
                if on_workers
                else "All replicas live in it, and so do TensorFlow and the traced graph."
            ),
        )
    )
    return tuple(charts)


def _pair(before: float, after: float, before_text: str, after_text: str) -> tuple[Bar, Bar]:
    return (
        Bar("unsharded", "baseline", before, before_text),
        Bar("sharded", "sharded", after, after_text),
    )


def _agreements(comparison: Comparison) -> Table:
    return Table(
        title="Agreement",
        columns=("quantity", "sharded differs by", "baseline moves by", "allowed", "verdict"),
        rows=tuple(
            (
                one.quantity,
                f"{one.difference:.1e}" if one.difference else "0, bit-identical",
                f"{one.moved:.1e}",
                f"{one.limit:.1e}",
                "agrees" if one.holds else f"disagrees in {one.worst}",
            )
            for one in comparison.agreements
        ),
        note=(
            "Of the worst tensor, relative to its largest element. Allowed is"
            f" {agreement.FACTOR} times what the unsharded run moves by when only its order of"
            f" summation changes ({reordering(comparison.task)}), and at least"
            f" {agreement.FLOOR:.0e}."
        ),
    )


def _sharding(run: Run) -> tuple[Table, ...]:
    if run.sharding is None:
        return ()
    travel = ("gathered in",) if any(one.gathered_in for one in run.sharding.variables) else ()
    notes = Table("Notes", ("note",), tuple((note,) for note in run.sharding.notes))
    return (
        Table(
            title="Sharded",
            columns=("variable", "shape", "layout", "padding", "slots", "bucket", *travel),
            rows=tuple(
                (
                    one.name,
                    " x ".join(map(str, one.shape)) or "scalar",
                    one.layout,
                    str(one.padding),
                    ", ".join(slot_label(slot, one.name) for slot in one.slots) or "none",
                    str(one.bucket),
                    *([one.gathered_in or "its own type"] if travel else []),
                )
                for one in run.sharding.variables
            ),
            empty="nothing",
        ),
        Table(
            title="Left alone, and why",
            columns=("variable", "reason"),
            rows=run.sharding.left_alone,
            empty="nothing: every variable of the step is sharded",
        ),
        *([notes] if notes.rows else []),
    )
