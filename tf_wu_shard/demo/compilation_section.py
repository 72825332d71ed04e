"""The report page's part on the TPU compiler: a step's figures, sharded and not, side by side."""

from __future__ import annotations

from tf_wu_shard.demo.compilation import Compilation
from tf_wu_shard.report.charts import Bar, BarChart
from tf_wu_shard.report.html import Section, Tile
from tf_wu_shard.report.quantities import byte_text, second_text
from tf_wu_shard.report.tables import Table
from tf_wu_shard.tpu_compiler.comparison import MODES, Comparison, Compiled
from tf_wu_shard.tpu_compiler.figures import Figures
from tf_wu_shard.tpu_compiler.table import parts_of, remarks_of, title_of

_TITLE = "The TPU compiler's word"
_ESTIMATES = "Times are libtpu's own estimates, and collectives have none."
_WHAT = {
    "transformer_small": "The model is the Transformer base of 64 million parameters with 2 of its"
    " 15 blocks and a quarter of its tokens."
}


def section(compilation: Compilation) -> Section:
    """Returns the chapter; where nothing was compiled it says what to do."""
    settings, compared = compilation.settings, compilation.compared
    if compared is None:
        return Section(
            title=_TITLE,
            text=f"{settings.model} for {settings.topology}",
            verdict=f"not compiled: {compilation.missing or compilation.failure}",
            good=False,
        )
    kept = "the compiler kept every reduce-scatter and all-gather of the sharded step"
    return Section(
        title=_TITLE,
        text=f"{title_of(compared)}. {_ESTIMATES} {_WHAT.get(settings.model or '', '')}".strip(),
        verdict="; ".join(compilation.problems) or kept,
        good=not compilation.problems,
        tiles=_tiles(compared),
        bars=_bars(compared),
        tables=(
            *(
                Table(
                    title=part.title[0].upper() + part.title[1:],
                    columns=("", *MODES),
                    rows=tuple((label, *cells) for label, cells in part.rows),
                )
                for part in parts_of(compared)
            ),
            Table("Remarks", ("remark",), tuple((remark,) for remark in remarks_of(compared))),
        ),
    )


def _tiles(compared: Comparison) -> tuple[Tile, ...]:
    sides = _both(compared)
    tiles = [
        Tile(f"{kind}s left", str(_left(compared.sharded, kind)), f"of {asked}")
        for kind, asked in compared.sharded.requested.items()
        if kind in ("reduce-scatter", "all-gather")
    ]
    if sides is None:
        return tuple(tiles)
    before, after = sides
    for label, field in (("memory in use", "in_use"), ("arguments", "argument_bytes")):
        now, was = (byte_text(getattr(one.memory, field)) for one in (after, before))
        tiles.append(Tile(label, now, f"was {was}"))
    if after.milliseconds is not None and before.milliseconds is not None:
        now, was = (second_text(one / 1e3) for one in (after.milliseconds, before.milliseconds))
        tiles.append(Tile("step, estimated", now, f"was {was}, collectives excluded"))
    return tuple(tiles)


def _bars(compared: Comparison) -> tuple[BarChart, ...]:
    sides = _both(compared)
    if sides is None:
        return ()
    before, after = sides
    charts = [
        _chart(
            "Memory of one device in use",
            *((one.memory.in_use, byte_text(one.memory.in_use)) for one in (before, after)),
        )
    ]
    if after.milliseconds is not None and before.milliseconds is not None:
        times = [one / 1e3 for one in (before.milliseconds, after.milliseconds)]
        title = "Estimated time of a step, collectives excluded"
        charts.append(_chart(title, *((time, second_text(time)) for time in times)))
    return tuple(charts)


def _chart(title: str, before: tuple[float, str], after: tuple[float, str]) -> BarChart:
    return BarChart(
        title, (Bar("replicated", "baseline", *before), Bar("sharded", "sharded", *after))
    )


def _both(compared: Comparison) -> tuple[Figures, Figures] | None:
    """Both steps' figures, where there are both."""
    before, after = compared.replicated.figures, compared.sharded.figures
    return None if before is None or after is None else (before, after)


def _left(side: Compiled, kind: str) -> str:
    return "?" if side.figures is None else str(side.figures.collectives.get(kind, 0))
