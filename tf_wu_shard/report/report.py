"""The report that users read, print and parse: what was done to one function, as data and as text.

The text has the verdict first, then the numbers, then every reason.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import types
from collections.abc import Mapping

from tf_wu_shard.report.quantities import byte_text
from tf_wu_shard.report.share import NONE, HeldBack, LeftAloneVariable, Share

_NOTHING: Mapping[str, str] = types.MappingProxyType({})


@dataclasses.dataclass(frozen=True)
class ShardedVariable:
    """A variable whose update is shared between the replicas.

    Attributes:
        name: Its name.
        shape: Its logical shape.
        dtype: Its element type.
        layout: How it is cut, such as "flat 30/4 pad 2", or who does it whole: "owner replica 2".
        slots: Names of the optimizer slots that live in shards.
        bucket: The bucket it travels in.
        padding: Elements by which equal shards exceed the tensor; not stored.
        gathered_in: What the weight is rounded to on its way from its shards to the step; "" where
            it travels in its own type.
        whole: Where what enters its matrix functions is whole, such as "by turns, 2 of 6 on each
            replica" or "on every replica"; "" where it has none.
        compiled: How XLA compiles what its update computes on its shard: "exact", "fast", or "as
            asked for" where the step has it compiled without the flag, too; "" where it does not.
        open_because: Why it compiles nothing of it, where `Report.compile_update` says that it
            compiles updates; "" where it does.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    layout: str
    slots: tuple[str, ...]
    bucket: int
    padding: int
    gathered_in: str = ""
    whole: str = ""
    compiled: str = ""
    open_because: str = ""


@dataclasses.dataclass(frozen=True)
class Bytes:
    """The same quantity without and with sharding, in bytes."""

    unsharded: int
    sharded: int


@dataclasses.dataclass(frozen=True)
class Report:
    """What the pass did to one traced function.

    Attributes:
        function: Name of the function.
        verdict: "sharded", "partly sharded" or "nothing sharded".
        num_replicas: Replicas that share each update; 0 where no gradient is reduced.
        variables: The sharded variables.
        left_alone: The others, each with its reason.
        notes: What was noticed and belongs to no variable.
        slot_bytes_per_replica: Bytes of the optimizer slots that the fullest replica holds. Slots
            of variables left alone count alike on both sides, as far as the graph shows them.
        wire_bytes: Bytes that reach a replica per step for the gradients found: an all-reduce
            counts as a reduce-scatter and an all-gather, each `(N - 1) / N` of the tensor. So does
            every tensor that a replica has whole for a matrix function, and each on its way back.
            A table that is gathered is counted. What has as many rows as a step happens to look up
            is not: entries of sparse gradients travel on both sides, the rows that an update gives
            to the other replicas on the sharded side alone.
        emitted: How many communication steps of each kind stand in the new graph: `reduce_scatter`,
            `all_gather`, `all_reduce` and `all_to_all`; for owners `reduce` to one replica and
            `broadcast` from it; for tables that are updated row by row `gather_entries` (a sparse
            gradient's entries from all replicas), `gather_rows` (a value for each of these rows
            that something beside the update reads) and `exchange_rows` (changed rows, into every
            replica's table).
        elements: How many elements of the variables above have a sharded update, of how many: of
            all variables that the function updates from gradients summed over replicas, small ones
            and those left alone included.
        slot_bytes: How many bytes of their slots live in shards, of how many; of none for an
            optimizer without slots.
        held_back: What holds most of the elements back; None where nothing does but the size of
            small variables, and at least half is sharded.
        weight_bytes_per_replica: Bytes of the weights of these updates, in the same way; unchanged
            where only their slots live in shards.
        place: Where the replicas sit and which groups follow from that; "" where all of them share
            one process.
        compile_update: How XLA compiles what the updates compute on their shards, "exact" or
            "fast"; "" where each op has its own kernel.
        at_a_time: How many replicas compute their gradients at a time, as they outnumber the
            cores; 0 where all do at once.
        changes: What other passes changed in the function, by their flags; what a run changes, up
            to when the report was asked for.
        pass_ms: Milliseconds spent in the pass.
        trace_ms: Milliseconds of the whole trace that the pass was part of.
    """

    function: str
    verdict: str
    num_replicas: int
    variables: tuple[ShardedVariable, ...]
    left_alone: tuple[LeftAloneVariable, ...]
    notes: tuple[str, ...]
    slot_bytes_per_replica: Bytes
    wire_bytes: Bytes
    emitted: dict[str, int]
    elements: Share = NONE
    slot_bytes: Share = NONE
    held_back: HeldBack | None = None
    weight_bytes_per_replica: Bytes = Bytes(0, 0)
    place: str = ""
    compile_update: str = ""
    at_a_time: int = 0
    changes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    pass_ms: float = 0.0
    trace_ms: float = 0.0

    @property
    def share(self) -> float:
        """The smaller of the sharded shares of elements and of slots, from 0 to 1.

        It is 0 where nothing is sharded. `ShardingOptions.min_sharded` is held against it.
        """
        if not self.variables:
            return 0.0
        return min(self.elements.fraction, self.slot_bytes.fraction)

    def to_json(self) -> str:
        """The report as a JSON object; its keys are the attributes' names, `share` among them."""
        return json.dumps(dataclasses.asdict(self) | {"share": self.share}, indent=1)

    def __str__(self) -> str:
        return as_text(self)

    @property
    def headline(self) -> str:
        """The verdict in one line."""
        return headline(self)


def headline(report: Report) -> str:
    """The verdict in one line, first of all the passes that changed how the function trains."""
    function = report.function
    if report.changes:
        said = ", ".join(f"{flag} ({change})" for flag, change in report.changes.items())
        function += f": changed by {said}"
    if not report.variables:
        held = report.held_back.largest if report.held_back is not None else ""
        left = sorted(report.left_alone, key=lambda a: (a.name != held, a.is_small))
        reasons = [f"{a.name}: {a.reason}" for a in left] + list(report.notes)
        why = reasons[0] if reasons else "it reduces no gradient over replicas"
        more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        return f"{function}: nothing sharded: {why}{more}"
    slots, wire = report.slot_bytes_per_replica, report.wire_bytes
    weights = report.weight_bytes_per_replica
    stored = f"slots {byte_text(slots.unsharded)} -> {byte_text(slots.sharded)} a replica"
    if weights.sharded != weights.unsharded:
        stored += f"   weights {byte_text(weights.unsharded)} -> {byte_text(weights.sharded)}"
    moved = "unchanged" if wire.sharded == wire.unsharded else f"was {byte_text(wire.unsharded)}"
    return (
        f"{function}: sharded {share_text(report)} over {report.num_replicas} replicas"
        f"   {stored}   wire {byte_text(wire.sharded)} a step ({moved})"
    )


def share_text(report: Report) -> str:
    """How much is sharded: `99 % of 4,128 elements and 99 % of 33.0 kB of slots: 1 of 2 variables`.

    Args:
        report: A report of a function of which something is sharded.
    """
    elements, slots = report.elements, report.slot_bytes
    text = f"{percent_text(elements)} of {elements.total:,} elements"
    if slots.total:
        text += f" and {percent_text(slots)} of {byte_text(slots.total)} of slots"
    total = len(report.variables) + len(report.left_alone)
    return f"{text}: {len(report.variables)} of {total} variables"


def percent_text(share: Share) -> str:
    """A share in percent, never more than it is: `99 %` of nearly all, `under 1 %` of a trace."""
    percent = 100 * share.sharded // share.total if share.total else 100
    return "under 1 %" if share.sharded and not percent else f"{percent} %"


def held_back_text(report: Report) -> str:
    """What holds most of the elements back, where and what lifts it; "" where nothing does."""
    held = report.held_back
    if held is None:
        return ""
    which = held.largest
    if held.variables > 1:
        which = f"{held.variables} variables such as {held.largest}"
    if held.elements:
        which += f", {percent_text(Share(held.elements, report.elements.total))} of the elements"
    return f"held back: {which}: {held.reason}{place_and_cure(held)}"


def verdict_line(report: Report) -> str:
    """The verdict in one line, with what holds most back, where, and what lifts it."""
    line = headline(report)
    if report.variables:
        return "; ".join((line, *held_lines(report)))
    return line + (place_and_cure(report.held_back) if report.held_back is not None else "")


def held_lines(report: Report) -> list[str]:
    """`held_back_text` as a line; no line where nothing is held back."""
    held = held_back_text(report)
    return [held] if held else []


def place_and_cure(held: HeldBack) -> str:
    """Where a reason was found, and what lifts it, as it follows the reason."""
    places = ", ".join(place for place in (held.where, held.line) if place)
    place = f" (at {places})" if places else ""
    return place + (f"; lifted by {held.cure}" if held.cure else "")


def facts(report: Report) -> list[str]:
    """What concerns the whole step: places, how weights travel, what is whole."""
    found = [f"replicas: {report.place}"] if report.place else []
    found += _compiled(report)
    if report.at_a_time:
        found.append(
            f"replicas outnumber the cores: {report.at_a_time} at a time compute gradients, so that"
            " those of others do not wait in memory"
        )
    for dtype in sorted({v.gathered_in for v in report.variables} - {""}):
        count = sum(v.gathered_in == dtype for v in report.variables)
        found.append(
            f"weights gathered in {dtype}: {count} of {len(report.variables)}, the shards keep"
            " their own type"
        )
    whole = sum(bool(v.whole) for v in report.variables)
    if whole:
        found.append(f"put together whole for matrix functions: {whole} of {len(report.variables)}")
    return found


def _compiled(report: Report) -> list[str]:
    """How many updates XLA compiles, and why not the others; nothing where it compiles none."""
    ways = collections.Counter(v.compiled for v in report.variables if v.compiled)
    reasons = collections.Counter(v.open_because for v in report.variables if v.open_because)
    others = "".join(f"; {number} not: {reason}" for reason, number in reasons.most_common())
    total = len(report.variables)
    return [
        f"compiled by XLA, {way}: updates of {count} of {total}{others}"
        for way, count in ways.items()
    ]


def as_text(report: Report, known: Mapping[str, str] = _NOTHING) -> str:
    """The whole report.

    Args:
        report: The report.
        known: What else to say of variables that are left alone, by name.
    """
    lines = [headline(report), *held_lines(report), *facts(report)]
    lines += variable_lines(report, known)
    lines += [f"note: {note}" for note in report.notes]
    if report.emitted:
        counts = ", ".join(f"{n} {kind}" for kind, n in sorted(report.emitted.items()))
        lines.append(f"emitted {counts}; pass {report.pass_ms:.0f} ms of {report.trace_ms:.0f} ms")
    return "\n".join(lines)


def variable_lines(report: Report, known: Mapping[str, str] = _NOTHING) -> list[str]:
    """A line for each variable that is sharded, then for each that is left alone, with why.

    Args:
        report: The report.
        known: What else to say of variables that are left alone, by name.
    """
    names = [v.name for v in report.variables] + [a.name for a in report.left_alone]
    width = max(map(len, names), default=0)
    lines = []
    for variable in report.variables:
        slots = ", ".join(slot_label(s, variable.name) for s in variable.slots) or "none"
        gathered = f"   gathered in {variable.gathered_in}" if variable.gathered_in else ""
        whole = f"   whole {variable.whole}" if variable.whole else ""
        lines.append(
            f"  {variable.name:<{width}}  {variable.layout}   slots {slots}"
            f"   bucket {variable.bucket}{gathered}{whole}"
        )
    if report.left_alone:
        lines.append("left alone")
    for left in report.left_alone:
        where = f" (at {left.where})" if left.where else ""
        more = f"{known[left.name]}   " if left.name in known else ""
        lines.append(f"  {left.name:<{width}}  {more}{left.reason}{where}")
    return lines


def slot_label(slot: str, variable: str) -> str:
    """What distinguishes a slot from its variable's others: Keras puts the variable's path first.

    A slot that is named otherwise keeps its whole name; so does one of which a number would be
    left, as TensorFlow counts variables of one name: of `Variable`, `Variable_3` is no slot `3`.
    """
    label = slot.rpartition(variable.replace("/", "_") + "_")[2]
    return slot if label.isdecimal() else label
