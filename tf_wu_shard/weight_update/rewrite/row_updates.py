"""Emits an update that a sparse gradient feeds, the copies of all replicas in step.

Each replica takes the entries that name its rows; what it has for the rows of a weight that is not
cut, all replicas scatter. What of it something outside looks at is put together from all rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tf_wu_shard.graph.op import Value
from tf_wu_shard.grounds import row_exchange
from tf_wu_shard.grounds.dialect import Gathered
from tf_wu_shard.layout import RowLayout
from tf_wu_shard.step.gradients import sparse_gradients
from tf_wu_shard.step.reductions import GradientReduction
from tf_wu_shard.weight_update.analysis.types import WeightUpdate, all_entries
from tf_wu_shard.weight_update.rewrite.body_emitter import BodyEmitter
from tf_wu_shard.weight_update.rewrite.emission import Emission
from tf_wu_shard.weight_update.rewrite.row_branches import emit_branch
from tf_wu_shard.weight_update.rewrite.row_emitter import RowEmitter


def emit_rows(
    emission: Emission,
    update: WeightUpdate,
    layout: RowLayout,
    reductions: Sequence[GradientReduction],
) -> tuple[list[RowEmitter], dict[Value, Value]]:
    """Emits the body of an update for all replicas.

    Args:
        emission: Where to emit.
        update: The update.
        layout: How its variables are cut.
        reductions: The parts of its gradients.

    Returns:
        Per replica its emitter, which has emitted; and for old values what takes their place.
    """
    gradients: dict[int, list[Value]] = {}
    places: list[dict[str, Value]] = [{} for _ in update.devices]
    for parts in sparse_gradients(reductions):
        of_gradient, numbered = own_entries(emission, parts, layout, update)
        gradients |= of_gradient
        (values,) = (part.key for part in parts if part.gathered is Gathered.VALUES)
        for found, of_replica in zip(places, numbered, strict=True):
            found[all_entries(values)] = of_replica
    emitters = [
        RowEmitter(emission, update, [layout], replica, gradients, places=own)
        for replica, own in enumerate(places)
    ]
    replaced: dict[Value, Value] = {}
    for op in update.body:
        if op.branch is not None:
            replaced |= emit_branch(emission, emitters, op, op.branch)
            continue
        for emitter in emitters:
            emitter.emit_op(op)
        if op.gathered:
            own = [e.gathered[name] for e, name in zip(emitters, op.ops, strict=True)]
            at = emission.at("", update.name, "gather_rows")
            whole = emission.entries.gather_entries(at, {"rows": own})["rows"]
            replaced |= {Value(name): got for name, got in zip(op.ops, whole, strict=True)}
    for emitter in emitters:
        emitter.finish()
    for shape in (r for r in reductions if r.gathered is Gathered.SHAPE):
        replaced |= dict(zip(shape.results, shape.operands, strict=True))
    return emitters, replaced


def own_entries(
    emission: Emission,
    reductions: Sequence[GradientReduction],
    layout: RowLayout,
    update: WeightUpdate,
) -> tuple[dict[int, list[Value]], list[Value]]:
    """What each replica has of one sparse gradient.

    Args:
        emission: Where to emit.
        reductions: Its parts.
        layout: How the table is cut.
        update: The update.

    Returns:
        Per part of it, per replica, that part of the entries that name its rows; per replica, the
        places of these entries among all, int64.
    """
    at = emission.at("", update.name, "entries")
    rows = next(r for r in reductions if r.gathered is Gathered.ROWS)
    values = next(r for r in reductions if r.gathered is Gathered.VALUES)
    parts = {"rows": rows, "values": values}
    whole = emission.entries.gather_entries(
        at, {name: [r.operands[copy] for copy in r.order] for name, r in parts.items()}
    )
    own: dict[int, list[Value]] = {r.key: [] for r in reductions}
    own_places = []
    for copy, there in enumerate(map(at.on, update.devices)):
        shard = emission.dialect.shard_of(copy)
        places, numbers = row_exchange.own_entries(there, whole["rows"][copy], layout, shard)
        own_places.append(places)
        own[rows.key].append(numbers)
        own[values.key].append(
            row_exchange.picked(there, whole["values"][copy], places, "own_values")
        )
        for shape in (r for r in reductions if r.gathered is Gathered.SHAPE):
            dims = list(layout.shard_shape(shard))
            own[shape.key].append(there.constant(dims, shape.dtype))
    return own, own_places


def exchange_rows(
    emission: Emission, emitters: Sequence[BodyEmitter]
) -> Mapping[str, tuple[tuple[str, ...], ...]]:
    """Scatters what all replicas have for some rows into every replica's whole weights.

    Args:
        emission: Where to emit.
        emitters: The emitters of all copies of one update, once every op of its body is emitted.

    Returns:
        For each weight that is not cut, by replica, the ops that write it, in order.
    """
    found: dict[str, tuple[tuple[str, ...], ...]] = {}
    own = [emitter for emitter in emitters if isinstance(emitter, RowEmitter)]
    for key, writes in own[0].row_writes.items() if own else ():
        scatters: list[Sequence[str]] = []
        for number in range(len(writes)):
            scatters.append(_exchange(emission, own, key, number, scatters[-1:]))
        found[key] = tuple(zip(*scatters, strict=True))
    return found


def _exchange(
    emission: Emission,
    emitters: Sequence[RowEmitter],
    key: str,
    number: int,
    before: Sequence[Sequence[str]],
) -> Sequence[str]:
    """Scatters a write into every component, after the scatters `before`; by replica, the ops."""
    update, layout = emitters[0].update, emitters[0].layout
    weight = next(w for w in update.weights if w.key == key)
    writes = [emitter.row_writes[key][number] for emitter in emitters]
    at, devices = emission.at("", key, "exchange"), update.devices
    own = [
        row_exchange.rows_of_table(
            at.on(device), write.rows, layout, emission.dialect.shard_of(copy)
        )
        for copy, (write, device) in enumerate(zip(writes, devices, strict=True))
    ]
    whole = emission.entries.gather_entries(
        at, {"rows": own, "values": [write.values for write in writes]}
    )
    scatters = []
    for replica, emitter in enumerate(emitters):
        version = emitter.versions[key][number]
        scatter = emission.at(devices[replica], key, "scatter").op(
            writes[0].type,
            [Value(weight.handles[replica]), whole["rows"][replica], whole["values"][replica]],
            "",
            controls=[*version.controls, *(names[replica] for names in before)],
        )
        scatters.append(scatter.op)
        emitter.replace_writes(version, scatter.op)
    return scatters
