"""The table of docs/real_programs.md: cells to Markdown and back."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping

from tests.real.outcome import MIN_ELEMENTS, Outcome
from tests.real.program import GROUNDS, MIRRORED, TPU, Program

_INTRODUCTION = """\
# Real programs

Programs in the manner of what people run, in small: most of them with a batch that is smaller at
the end, sequences of unequal lengths, shapes asked for when the step runs. Each is trained twice on
each ground, unsharded and sharded, in processes of their own, with the default options; but workers
shard steps of any size, and Keras 3.15 is
[repaired there](what_is_sharded.md#several-workers). The table is made by
`python -m tools.real_programs`; the programs are in `tests/real/`.

- **sharded**: the share of the elements of all trained weights not below `min_elements`{minimum},
  that is updated in shards by every function that updates them.
- **apart**: how far any weight, slot, loss or metric is from that of the unsharded run, relative to
  its tensor's largest element, on any worker; "0" where no bit differs. On 2 replicas none may, but
  where a norm or a mean is taken over shards; on 4, sums may be taken in another order.
- **pass**: the time of the pass, of that of all traces of the program, in milliseconds on two cores
  of a busy machine; the median of {repeats}. On workers it is worker 0's, its wait for the other
  one's trace included.
- **-**: TensorFlow itself does not run it there; why, is said below the table.
- **?**: not measured yet.
"""

# What stands below is written by hand and kept.
REST = "<!-- The tool writes what is above. -->\n"

_ROW = re.compile(r"^\| `(?P<name>\w+)` \|(?P<cells>.*)\|$", re.MULTILINE)
_NOT_RUN = "-"
_NOT_MEASURED = "?"


@dataclasses.dataclass(frozen=True)
class Cell:
    """What came of a program on a ground, as the page says it.

    Attributes:
        sharded: Percents, rounded down.
        apart: "0", or a bound such as "2e-07".
        times: Of the pass and of the traces.
    """

    sharded: str
    apart: str
    times: str

    @classmethod
    def of(cls, outcome: Outcome) -> Cell:
        """The cell of an outcome; an error says "WRONG"."""
        if outcome.unsharded or outcome.error:
            which = "unsharded" if outcome.unsharded else "sharded"
            return cls("WRONG", f"the {which} run fails", "")
        percents = f"{math.floor(outcome.share * 100)} %"
        times = f"{outcome.pass_ms:,.0f} of {outcome.trace_ms:,.0f}"
        apart = "0" if not outcome.farthest else f"{_rounded_up(outcome.farthest):.0e}"
        return cls(percents, apart, times)

    @property
    def share(self) -> int:
        """Percents; -1 for what went wrong."""
        return int(self.sharded.removesuffix(" %")) if self.sharded != "WRONG" else -1


Cells = Mapping[tuple[str, str], Cell]


def _rounded_up(apart: float) -> float:
    scale = 10.0 ** math.floor(math.log10(apart))
    return math.ceil(apart / scale * (1 - 1e-9)) * scale


def rendered(cells: Cells, programs: Mapping[str, Program], repeats: str, rest: str) -> str:
    """The page.

    Args:
        cells: By program and ground.
        programs: All programs, a line each.
        repeats: How many runs the times are the median of.
        rest: What stands below the tool's part.
    """
    least = MIN_ELEMENTS[MIRRORED], MIN_ELEMENTS[TPU]
    minimum = " ({:,} elements on CPUs, {:,} on 4 cores)".format(*least)
    lines = [_INTRODUCTION.format(minimum=minimum, repeats=repeats)]
    lines += [f"{number}. {text}" for number, text in enumerate(GROUNDS.values(), 1)]
    numbers = range(1, len(GROUNDS) + 1)
    titles = [f"{title} ({n})" for n in numbers for title in ("sharded", "apart", "pass")]
    heads = ["program", "what is odd about its data or its loop", *titles]
    lines += ["", _line(heads), _line(["---"] * len(heads))]
    for name, program in programs.items():
        own = {g: cells.get((name, g)) for g in GROUNDS if g not in program.refused}
        texts = [text for g in GROUNDS for text in _texts(own.get(g), g in own)]
        lines.append(_line([f"`{name}`", program.odd.replace("|", "/"), *texts]))
    refused = {
        f"`{p.name}`, {GROUNDS[ground]}": reason
        for p in programs.values()
        for ground, reason in p.refused.items()
    }
    lines += _section("Not run", "TensorFlow's own refusals", refused)
    alone = {f"`{p.name}`": p.alone for p in programs.values() if p.alone}
    lines += _section("Less than 95 %", "What keeps them whole", alone)
    near = {f"`{p.name}`": f"within {p.near:.0e}" for p in programs.values() if p.near}
    lines += _section("Rounded otherwise", "A norm or a mean is taken over shards", near)
    return "\n".join(lines) + "\n\n" + REST + rest


def _section(title: str, says: str, entries: Mapping[str, str]) -> list[str]:
    found = [f"- {what}: {why}." for what, why in entries.items()]
    return ["", f"## {title}", "", *([f"{says}:", "", *found] if found else ["None."])]


def _texts(cell: Cell | None, runs: bool) -> tuple[str, str, str]:
    if cell is None:
        return (_NOT_MEASURED if runs else _NOT_RUN,) * 3
    return cell.sharded, cell.apart, cell.times


def _line(texts: list[str]) -> str:
    return f"| {' | '.join(texts)} |"


def parsed(page: str) -> tuple[dict[tuple[str, str], Cell], str, str]:
    """The cells of a page that `rendered` wrote, of how many runs the times are, and the rest."""
    table, _, rest = page.partition(REST)
    cells: dict[tuple[str, str], Cell] = {}
    for match in _ROW.finditer(table):
        _, *texts = (text.strip() for text in match["cells"].split("|"))
        for place, ground in enumerate(GROUNDS):
            own = texts[3 * place : 3 * place + 3]
            # A page may be older than a ground.
            if own and own not in ([_NOT_RUN] * 3, [_NOT_MEASURED] * 3):
                cells[match["name"], ground] = Cell(*own)
    repeats = re.search(r"the median of (\d+)", " ".join(table.split()))
    return cells, repeats[1] if repeats else "1", rest


def differences(written: Cells, found: Cells) -> list[str]:
    """A line for each cell that is not what the page says; times vary and are not compared."""
    wrong = []
    for key, cell in found.items():
        known = written.get(key)
        same = known is not None and known.sharded == cell.sharded
        if not same or float(cell.apart) > float(known.apart if known else 0):
            wrong.append(f"{' '.join(key)}: the page says {known or 'nothing'}, found {cell}")
    return wrong
