"""Finds the weight updates behind the gradient reductions, by following the data.

From a reduced gradient it floods forward through ops that have a rule to the variables that are
written: the weight and its slots, whatever they are called. From *all* writes of these variables
it then slices backward, so that a second write (AdamW's decay) can not be missed.
"""

from __future__ import annotations

from collections.abc import Iterable

from tf_wu_shard.analysis.accesses import accesses, is_call
from tf_wu_shard.analysis.body import BodyBuilder
from tf_wu_shard.analysis.floods import Flood, entangled, mirrored_handles, written_keys
from tf_wu_shard.analysis.gradients import ResultNames, with_parts
from tf_wu_shard.analysis.replicas import ReplicaMatcher
from tf_wu_shard.analysis.row_body import RowBodyBuilder
from tf_wu_shard.analysis.row_branches import depending
from tf_wu_shard.analysis.single_program import SingleProgram
from tf_wu_shard.analysis.types import GradientReduction, RefusedUpdate, WeightUpdate
from tf_wu_shard.dialects.base import Gathered
from tf_wu_shard.graph.view import GraphView, Op, Value
from tf_wu_shard.placement import Refusal
from tf_wu_shard.rules.fused import FUSED
from tf_wu_shard.rules.registry import Family, family_of, no_rule
from tf_wu_shard.rules.sparse import BRANCH, ROW_OPS, SPARSE_WRITES, UNIQUE
from tf_wu_shard.rules.variables import READ, WRITES


def weight_updates(
    view: GraphView,
    reductions: tuple[GradientReduction, ...],
    names: ResultNames,
    devices: tuple[str, ...],
    num_replicas: int,
) -> tuple[tuple[WeightUpdate, ...], tuple[RefusedUpdate, ...]]:
    """Finds every update that a gradient reduction feeds.

    Args:
        view: The graph.
        reductions: Its gradient reductions.
        names: Every name of a reduced gradient, as `gradients.result_names` gives them.
        devices: Per copy of the update in the graph, its device.
        num_replicas: How many replicas run them; more than copies where all run one program.

    Returns:
        The updates that can be sharded, and the refused ones with their reasons. A reduction
        that reaches no variable (a loss, a metric) is in neither.
    """
    handles = mirrored_handles(view, len(devices))
    matcher = (
        ReplicaMatcher(view, names)
        if len(devices) == num_replicas
        else SingleProgram(view, names, num_replicas)
    )
    floods = [_flood(view, reduction, names, handles) for reduction in reductions]
    claimed = {variable for flood in floods for variable in flood.variables}
    common = (view, matcher, names, handles, devices, claimed)
    builder = BodyBuilder(*common)
    row_builder = RowBodyBuilder(*common, reductions=reductions)
    updates: list[WeightUpdate] = []
    refused: list[RefusedUpdate] = []
    for flood in entangled(floods):
        if not flood.variables:
            continue
        keys = tuple(sorted(with_parts(reductions, flood.keys)))
        sparse = any(reductions[key].gathered for key in keys)
        chosen = row_builder if sparse else builder
        outcome = flood.refusal or chosen.build(keys, tuple(flood.variables))
        if isinstance(outcome, Refusal):
            trained = [v for v in flood.variables if _is_trainable(view, v, handles)]
            weights = trained or [_likely_weight(view, flood.variables, handles)]
            refused += [RefusedUpdate(weight, keys, outcome) for weight in weights]
        else:
            updates.append(outcome)
    return tuple(updates), tuple(refused)


def _flood(
    view: GraphView,
    reduction: GradientReduction,
    names: ResultNames,
    handles: dict[str, dict[int, str]],
) -> Flood:
    """Follows one reduced gradient, on replica 0, to the variables that are written with it."""
    sparse = reduction.gathered is not None
    variables, refusal = _reach(view, names.of(reduction.key, 0), sparse)
    if reduction.gathered is Gathered.SHAPE:
        # Anything may be made of the table's shape, which is no secret of a shard.
        refusal = None
    flood = Flood({reduction.key}, [], refusal)
    pending = variables
    while pending:
        key = pending.pop(0)
        if key in flood.variables:
            continue
        flood.variables.append(key)
        if key not in handles or 0 not in handles[key]:
            flood.refusal = flood.refusal or Refusal(
                key, "it is not a mirrored variable with a component on every replica"
            )
            continue
        # A later read of what was just written may carry the update on (Adam reads its moments
        # back). Where it leads elsewhere, the read is simply one from outside.
        written = False
        for access in accesses(view, handles[key][0]):
            written = written or not access.access.is_read
            if written and access.op.type == READ:
                reached, outside = _reach(view, [Value(access.op.name)], sparse)
                if outside is None:
                    pending.extend(reached)
    return flood


def _reach(
    view: GraphView, start: Iterable[Value], sparse: bool = False
) -> tuple[list[str], Refusal | None]:
    """The variables written with what is computed from `start`; the first op with no rule.

    What is computed from a `sparse` gradient may also pass through ops on rows of a table.
    """
    found: list[str] = []
    refusal: Refusal | None = None
    stack = list(start)
    seen = set(stack)
    returned = set(view.outputs)
    while stack:
        value = stack.pop(0)
        if value in returned:
            refusal = refusal or Refusal(value.op, "the step returns a value computed from it")
        for op, slot in view.consumers(value):
            if op.type in WRITES or op.type in FUSED:
                refusal = refusal or _bad_operand(op, slot)
                found.extend(written_keys(view, op))
                continue
            if op.type in SPARSE_WRITES:
                if not sparse:
                    refusal = refusal or no_rule(op.type, op.name)
                found.extend(written_keys(view, op))
                continue
            if sparse and op.type in (*ROW_OPS, BRANCH):
                results = [Value(op.name, i) for i in _row_results(view, op, slot)]
                stack += [v for v in results if v not in seen]
                seen.update(results)
                continue
            if family_of(op.type) is None:
                refusal = refusal or no_rule(op.type, op.name)
                continue
            if family_of(op.type) is Family.SUM:
                # The same on every replica from here on, whatever it goes into.
                continue
            result = Value(op.name, slot if op.type == "IdentityN" else 0)
            if result not in seen:
                seen.add(result)
                stack.append(result)
    return found, refusal


def _row_results(view: GraphView, op: Op, slot: int) -> Iterable[int]:
    """The numbers of the results of an op on rows that depend on one of its operands."""
    if op.type == BRANCH:
        return sorted(depending(view, op, slot))
    return range(2 if op.type == UNIQUE else 1)


def _bad_operand(op: Op, slot: int) -> Refusal | None:
    expected = FUSED[op.type].gradient if op.type in FUSED else 1
    if slot == expected:
        return None
    return Refusal(op.name, f"a gradient enters {op.type} as operand {slot}")


def _is_trainable(view: GraphView, key: str, handles: dict[str, dict[int, str]]) -> bool:
    return any(view.variables[handle].trainable for handle in handles.get(key, {}).values())


def _likely_weight(
    view: GraphView, variables: list[str], handles: dict[str, dict[int, str]]
) -> str:
    """What to name a refused update by that reaches no trainable variable: what a layer reads."""
    for key in variables:
        handle = handles.get(key, {}).get(0)
        if handle is None:
            continue
        touching = accesses(view, handle)
        if touching and touching[0].access.is_read and _feeds_more(view, touching[0].op):
            return key
    return variables[0]


def _feeds_more(view: GraphView, read: Op) -> bool:
    """Whether a read feeds something that is no elementwise arithmetic: a layer."""
    return any(family_of(op.type) is None for op, _ in view.consumers(Value(read.name))) or (
        read.type != READ
    )


def written_unreached(
    view: GraphView,
    names: ResultNames,
    reached: set[str],
    num_replicas: int,
) -> tuple[RefusedUpdate, ...]:
    """Trainable mirrored variables that are written, but that no reduced gradient was followed to.

    Args:
        view: The graph.
        names: Every name of a reduced gradient, as `gradients.result_names` gives them.
        reached: Keys of the variables that reductions were followed to.
        num_replicas: How many replicas the graph holds.

    Returns:
        Each such variable, in the order of the view, with the reason.
    """
    found: dict[str, RefusedUpdate] = {}
    for handle, ref in view.variables.items():
        if not ref.trainable or ref.num_replicas != num_replicas or ref.replica != 0:
            continue
        if ref.key in reached or ref.shape == ():
            continue
        for access in accesses(view, handle):
            if not access.access.is_read and ref.key not in found:
                keys, refusal = _why_unreached(view, access.op, ref.shape, names)
                found[ref.key] = RefusedUpdate(ref.key, keys, refusal)
    return tuple(found.values())


def _why_unreached(
    view: GraphView,
    write: Op,
    shape: tuple[int, ...] | None,
    names: ResultNames,
) -> tuple[tuple[int, ...], Refusal]:
    """The reductions that a write of a variable depends on, and what stopped their following."""
    keys: set[int] = set()
    before: set[str] = set()
    stack = list(write.inputs)
    while stack:
        value = stack.pop()
        if value in names:
            keys.add(names[value][0])
        elif value.op not in before:
            before.add(value.op)
            stack.extend(view.producer(value).inputs)
            if value.op in view.variables:
                # What a read yields was written there, perhaps in this step.
                touching = accesses(view, value.op)
                stack.extend(v for a in touching if not a.access.is_read for v in a.op.inputs)
    start = [v for key in sorted(keys) for v in names.of(key, 0)]
    # An update also goes on from slots that it wrote; they are as large as the weight.
    start += [
        Value(name)
        for name in before
        if view.ops[name].type == READ
        and (ref := view.variables.get(view.ops[name].inputs[0].op)) is not None
        and ref.shape == shape
    ]
    sparse = not names.sparse.isdisjoint(keys)
    stopped = _first_without_rule(view, start, before, sparse) if keys else None
    if stopped is not None:
        return tuple(sorted(keys)), no_rule(stopped.type, stopped.name)
    if is_call(write.type):
        return (), Refusal(
            write.name,
            f"its update runs inside of {write.type}, a branch, a loop or a function that the step"
            " calls, and no gradient reduction known here is in there with it",
        )
    return (), Refusal(write.name, f"{write.type} writes it from no gradient reduction known here")


def _first_without_rule(
    view: GraphView, start: Iterable[Value], within: set[str], sparse: bool
) -> Op | None:
    """The first op in the order of the view, among those `within`, that no rule leads beyond."""
    stack = list(start)
    seen = set(stack)
    found: Op | None = None
    while stack:
        for op, slot in view.consumers(stack.pop()):
            if op.name not in within or op.type in WRITES or op.type in FUSED:
                continue
            if family_of(op.type) is None and not (sparse and op.type in (*ROW_OPS, BRANCH)):
                if found is None or op.position < found.position:
                    found = op
                continue
            if family_of(op.type) is Family.SUM:
                continue
            result = Value(op.name, slot if op.type == "IdentityN" else 0)
            if result not in seen:
                seen.add(result)
                stack.append(result)
    return found


def without_halves(
    view: GraphView, refused: Iterable[RefusedUpdate], unreached: Iterable[RefusedUpdate]
) -> tuple[RefusedUpdate, ...]:
    """Leaves out slots that were refused only because the way to their weight was not found.

    Args:
        view: The graph.
        refused: The updates that were followed from their gradients and refused.
        unreached: The weights that no gradient was followed to, as `written_unreached` gives them.

    Returns:
        The refused updates of trainable variables, and those whose gradients explain no weight.
    """
    explained = {key for weight in unreached for key in weight.reductions}
    trainable = {ref.key for ref in view.variables.values() if ref.trainable}
    return tuple(
        r for r in refused if r.variable in trainable or not explained.issuperset(r.reductions)
    )
