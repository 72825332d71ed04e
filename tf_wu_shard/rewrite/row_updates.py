"""Emits an update that a sparse gradient feeds, the copies of all replicas in step.

Each replica takes the entries that name its rows; what it has for the rows of a weight that is not
cut, all replicas scatter. What of it something outside looks at is put together from all rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tf_wu_shard.analysis.gradients import sparse_gradients
from tf_wu_shard.analysis.row_lies import all_entries
from tf_wu_shard.analysis.types import GradientReduction, WeightUpdate
from tf_wu_shard.dialects import plain_ops, row_exchange
from tf_wu_shard.dialects.base import Dialect, Gathered
from tf_wu_shard.dialects.table_layout import TableLayout
from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.rewrite.body_emitter import BodyEmitter
from tf_wu_shard.rewrite.names import scope_of
from tf_wu_shard.rewrite.row_branches import emit_branch
from tf_wu_shard.rewrite.row_emitter import RowEmitter

_INT64 = 9


def emit_rows(
    view: GraphView,
    builder: GraphBuilder,
    dialect: Dialect,
    update: WeightUpdate,
    layout: TableLayout,
    reductions: Sequence[GradientReduction],
    handles: Mapping[str, Sequence[Value]],
) -> tuple[list[RowEmitter], dict[Value, Value]]:
    """Emits the body of an update for all replicas.

    Args:
        view: The old graph.
        builder: Where to emit.
        dialect: Cuts slices.
        update: The update.
        layout: How its variables are cut.
        reductions: The parts of its gradients.
        handles: For each slot key, per replica the handle of its shard.

    Returns:
        Per replica its emitter, which has emitted; and for old values what takes their place.
    """
    gradients: dict[int, list[Value]] = {}
    places: list[dict[str, Value]] = [{} for _ in update.devices]
    for parts in sparse_gradients(reductions):
        of_gradient, numbered = own_entries(builder, parts, layout, update)
        gradients |= of_gradient
        (values,) = (part.key for part in parts if part.gathered is Gathered.VALUES)
        for found, of_replica in zip(places, numbered, strict=True):
            found[all_entries(values)] = of_replica
    emitters = [
        RowEmitter(view, builder, dialect, update, layout, replica, gradients, handles, places=own)
        for replica, own in enumerate(places)
    ]
    replaced: dict[Value, Value] = {}
    for op in update.body:
        if op.branch is not None:
            replaced |= emit_branch(view, builder, emitters, op, op.branch)
            continue
        for emitter in emitters:
            emitter.emit_op(op)
        if op.gathered:
            own = [e.gathered[name] for e, name in zip(emitters, op.ops, strict=True)]
            dtype, scope = view.dtype(Value(op.ops[0])), scope_of(update.name, "gather_rows")
            whole = plain_ops.joined(builder, own, dtype, update.devices[0], scope)
            replaced |= {Value(name): whole for name in op.ops}
    for emitter in emitters:
        emitter.finish()
    for shape in (r for r in reductions if r.gathered is Gathered.SHAPE):
        replaced |= dict(zip(shape.results, shape.operands, strict=True))
    return emitters, replaced


def own_entries(
    builder: GraphBuilder,
    reductions: Sequence[GradientReduction],
    layout: TableLayout,
    update: WeightUpdate,
) -> tuple[dict[int, list[Value]], list[Value]]:
    """What each replica has of one sparse gradient.

    Args:
        builder: Where to emit.
        reductions: Its parts.
        layout: How the table is cut.
        update: The update.

    Returns:
        Per part of it, per replica, that part of the entries that name its rows; per replica, the
        places of these entries among all, int64.
    """
    devices, scope = update.devices, scope_of(update.name, "entries")
    whole = {
        r.gathered: row_exchange.joined_entries(
            builder, r.operands, r.order, r.dtype, devices[0], f"{scope}/{r.gathered.name.lower()}"
        )
        for r in reductions
        if r.gathered in (Gathered.VALUES, Gathered.ROWS)
    }
    rows = next(r for r in reductions if r.gathered is Gathered.ROWS)
    values = next(r for r in reductions if r.gathered is Gathered.VALUES)
    own: dict[int, list[Value]] = {r.key: [] for r in reductions}
    own_places = []
    for replica, device in enumerate(devices):
        places, numbers = row_exchange.own_entries(
            builder, whole[Gathered.ROWS], layout, rows.dtype, replica, device, scope
        )
        own_places.append(places)
        own[rows.key].append(numbers)
        own[values.key].append(
            row_exchange.picked(
                *(builder, whole[Gathered.VALUES], places, values.dtype, _INT64, device),
                f"{scope}/own_values",
            )
        )
        for shape in (r for r in reductions if r.gathered is Gathered.SHAPE):
            dims = list(layout.shard_shape(replica))
            own[shape.key].append(builder.constant(dims, device=device, dtype=shape.dtype))
    return own, own_places


def exchange_rows(
    builder: GraphBuilder, emitters: Sequence[BodyEmitter]
) -> Mapping[str, tuple[tuple[str, ...], ...]]:
    """Scatters what all replicas have for some rows into every replica's whole weights.

    Args:
        builder: Where to emit.
        emitters: The emitters of all copies of one update, after `emit`.

    Returns:
        For each weight that is not cut, by replica, the ops that write it, in order.
    """
    found: dict[str, tuple[tuple[str, ...], ...]] = {}
    own = [emitter for emitter in emitters if isinstance(emitter, RowEmitter)]
    for key, writes in own[0].row_writes.items() if own else ():
        scatters: list[Sequence[str]] = []
        for number in range(len(writes)):
            scatters.append(_exchange(builder, own, key, number, scatters[-1:]))
        found[key] = tuple(zip(*scatters, strict=True))
    return found


def _exchange(
    builder: GraphBuilder,
    emitters: Sequence[RowEmitter],
    key: str,
    number: int,
    before: Sequence[Sequence[str]],
) -> Sequence[str]:
    """Scatters a write into every component, after the scatters `before`; by replica, the ops."""
    update, layout = emitters[0].update, emitters[0].layout
    weight = next(w for w in update.weights if w.key == key)
    writes = [emitter.row_writes[key][number] for emitter in emitters]
    scope, devices = scope_of(key, "exchange"), update.devices
    rows = row_exchange.all_rows(
        builder,
        dict(enumerate(write.rows for write in writes)),
        layout,
        writes[0].rows_dtype,
        devices,
        scope,
    )
    values = plain_ops.joined(
        builder, [w.values for w in writes], weight.dtype, devices[0], f"{scope}/values"
    )
    scatters = []
    for replica, emitter in enumerate(emitters):
        version = emitter.versions[key][number]
        scatter = builder.op(
            writes[0].type,
            [Value(weight.handles[replica]), rows, values],
            name=scope_of(key, "scatter"),
            device=devices[replica],
            controls=[*version.controls, *(names[replica] for names in before)],
            types={"dtype": weight.dtype, "Tindices": writes[0].rows_dtype},
        )
        scatters.append(scatter.op)
        emitter.replace_writes(version, scatter.op)
    return scatters
