"""The answer as text for a terminal: the verdict first, then numbers, then every reason.

Names come out of a file that anyone may have made: what could move a cursor or set a color is
written as an escape, and what is endless is cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tf_wu_shard.inspection.answer import SCRIPT, FunctionAnswer, Inspection, MemoryRow
from tf_wu_shard.report.quantities import byte_text
from tf_wu_shard.report.text import as_text

_LONGEST_LINE = 400


def as_lines(inspection: Inspection) -> str:
    """The whole answer.

    Args:
        inspection: The answer as data.
    """
    return "\n".join(map(printable, _lines(inspection)))


def printable(line: str) -> str:
    """A line that only writes characters: others are escaped, and a long line is cut.

    Args:
        line: Any text.
    """
    cut = line if len(line) <= _LONGEST_LINE else line[: _LONGEST_LINE - 4] + " ..."
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode()
        for c in cut
    )


def _lines(inspection: Inspection) -> Iterator[str]:
    yield f"{inspection.form}, {inspection.variables} variables: {inspection.verdict}"
    if inspection.form == SCRIPT:
        yield inspection.how
    for function in inspection.functions:
        yield f"{function.name}: {function.verdict}"
        yield from _of_function(function)
    for note in inspection.notes:
        yield f"note: {note}"


def _of_function(function: FunctionAnswer) -> Iterator[str]:
    if function.reductions:
        yield f"  reduces {function.reductions} gradients, over {function.groups}"
    if function.assumed:
        yield f"  takes {function.assumed} gradients for summed where they enter their updates"
    found = Counter((u.optimizer, u.because) for u in function.updates)
    for (optimizer, because), count in found.items():
        yield f"  {count} updates: {optimizer} ({because})"
    if function.report is not None:
        for line in as_text(function.report).splitlines():
            yield f"  {line}"
    if function.memory:
        yield "  replicas   weights a replica        slots a replica"
        yield from map(_of_row, function.memory)


def _of_row(row: MemoryRow) -> str:
    weights = f"{byte_text(row.weights.unsharded)} -> {byte_text(row.weights.sharded)}"
    slots = f"{byte_text(row.slots.unsharded)} -> {byte_text(row.slots.sharded)}"
    return f"  {row.replicas:>8}   {weights:<22}   {slots}"
