"""A graph before and after its rewrite, as a unified diff that knows what a graph is.

An op is the same if its name is. What was added stands behind the last op that it waits for, with
the constants that it takes right before it, so that a collective stands where it communicates. That
takes one walk over each graph, whatever its size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.text import op_text
from tf_wu_shard.graph.view import GraphView, VariableRef
from tf_wu_shard.rules.variables import READ

_CONTEXT = 3

# The beginning of a line: of an op that stays, that goes, that comes.
_SAME, _OLD, _NEW = " ", "-", "+"

_Row = tuple[str, str]


@dataclasses.dataclass(frozen=True)
class GraphDiff:
    """What a rewrite changes of a graph.

    Attributes:
        about: What is compared with what.
        added: How many ops are new.
        removed: How many ops are gone.
        changed: How many have other inputs or attributes.
        lines: The unified diff; () where nothing changes.
        refusal: Why there is none, or "".
    """

    about: str
    added: int = 0
    removed: int = 0
    changed: int = 0
    lines: tuple[str, ...] = ()
    refusal: str = ""


def graph_diff(
    before: GraphView, after: GraphView, about: str, handles: Mapping[str, VariableRef]
) -> GraphDiff:
    """Compares two graphs.

    Args:
        before: The one.
        after: The other.
        about: What they are.
        handles: What is known of handles that only the other has, by the op that yields them.
    """
    rows = list(_rows(before, after, handles))
    marks = [mark for mark, _ in rows]
    removed = sum(op.name not in after.ops for op in before)
    changed = marks.count(_OLD) - removed
    return GraphDiff(
        about=about,
        added=marks.count(_NEW) - changed,
        removed=removed,
        changed=changed,
        lines=tuple(_hunks(rows)),
    )


def _rows(
    before: GraphView, after: GraphView, handles: Mapping[str, VariableRef]
) -> Iterator[_Row]:
    """All lines of both graphs, each with how it begins."""
    known = {**before.variables, **handles}
    after = after.with_shapes(
        {
            Value(op.name): shape
            for op in after
            if op.type == READ and (shape := _held(known, op)) is not None
        }
    )
    added = _added_after(before, after)

    def new(op: Op) -> str:
        return op_text(after, op, after.shape, known)

    yield from ((_NEW, new(op)) for op in added.get(-1, ()))
    for place, op in enumerate(before):
        old = op_text(before, op, before.shape, before.variables)
        now = new(after.ops[op.name]) if op.name in after.ops else ""
        if old == now:
            yield _SAME, old
        else:
            yield _OLD, old
            if now:
                yield _NEW, now
        yield from ((_NEW, new(op)) for op in added.get(place, ()))


def _held(known: Mapping[str, VariableRef], read: Op) -> tuple[int, ...] | None:
    """The shape of what a read reads."""
    ref = known.get(read.inputs[0].op)
    return None if ref is None else ref.shape


def _added_after(before: GraphView, after: GraphView) -> dict[int, list[Op]]:
    """The new ops by the place, in the graph before, of the op that they stand behind."""
    places = {op.name: place for place, op in enumerate(before)}
    new = [op for op in after if op.name not in places]
    for op in new:
        places[op.name] = max((places[name] for name in op.sources), default=-1)
    first: dict[str, int] = {}
    for op in reversed(list(after)):
        is_new = op.name not in before.ops
        # What waits for nothing, or for such ops only, stands where it is first used.
        if is_new and places[op.name] < 0:
            places[op.name] = first.get(op.name, -1)
        use = places[op.name] if is_new else places[op.name] - 1
        for name in op.sources:
            first[name] = min(first.get(name, use), use)
    found: dict[int, list[Op]] = {}
    for op in new:
        found.setdefault(places[op.name], []).append(op)
    return found


def _hunks(rows: Sequence[_Row]) -> Iterator[str]:
    """The lines around what changes, with the headers of a unified diff."""
    changed = [number for number, (mark, _) in enumerate(rows) if mark != _SAME]
    # How many lines of either graph come before each row.
    old = new = 0
    counts = []
    for mark, _ in rows:
        counts.append((old, new))
        old += mark != _NEW
        new += mark != _OLD
    counts.append((old, new))
    start = 0
    while start < len(changed):
        end = start
        while end + 1 < len(changed) and changed[end + 1] - changed[end] <= 2 * _CONTEXT:
            end += 1
        low = max(changed[start] - _CONTEXT, 0)
        high = min(changed[end] + _CONTEXT + 1, len(rows))
        (old_low, new_low), (old_high, new_high) = counts[low], counts[high]
        yield f"@@ -{old_low + 1},{old_high - old_low} +{new_low + 1},{new_high - new_low} @@"
        yield from (f"{mark}{text}" for mark, text in rows[low:high])
        start = end + 1
