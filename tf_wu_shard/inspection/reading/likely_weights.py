"""Which variables of a graph are its weights, where the file does not say it."""

from __future__ import annotations

from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.inspection.reading.calls import WRITERS
from tf_wu_shard.rules.registry import Family, family_of
from tf_wu_shard.rules.variables import READ, WHOLE_READS
from tf_wu_shard.rules.writes import ASSIGN, is_fused_update, num_written
from tf_wu_shard.step.accesses import feeds_a_layer

# What is none of these may be a layer, a loss, or the gradient of one.
_ARITHMETIC = (Family.ELEMENTWISE, Family.RELABEL)


def likely_weights(view: GraphView) -> set[str]:
    """The handles of what is a weight.

    That is the first variable of a fused update (see `graph_def.program_view`), what is written and
    read by a layer, and what enters its own update by way of one.

    Args:
        view: The graph.
    """
    fused = {op.inputs[0].op for op in view if is_fused_update(op.type)}
    read = {
        name for name in view.variables if _is_written(view, name) and feeds_a_layer(view, name)
    }
    return (fused & view.variables.keys()) | read | _behind_their_gradients(view)


def _is_written(view: GraphView, handle: str) -> bool:
    return any(op.type in WRITERS for op, _ in view.consumers(Value(handle)))


def _behind_their_gradients(view: GraphView) -> set[str]:
    """The variables of several elements that are written with more than arithmetic on themselves.

    What a slot holds enters what it is written with by arithmetic alone. What a weight holds enters
    it by way of a layer, the loss and the gradient, be the layer a bias or the scale of a norm.
    """
    bits = {name: 1 << number for number, name in enumerate(view.variables)}
    # In what ops yield, and variables hold: the variables that are in it, a bit each, and those
    # that are by way of more than arithmetic.
    direct, far = dict[str, int](), dict[str, int]()
    held, held_far = dict(bits), dict.fromkeys(bits, 0)
    found = set[str]()
    for op in view:
        handles = [value.op for value in op.inputs if value.op in bits]
        own, own_far = _all_of(direct, op), _all_of(far, op)
        if written := num_written(op.type):
            for name in handles[:written]:
                if own_far & bits[name] and view.variables[name].shape != ():
                    found.add(name)
                is_new = op.type == ASSIGN
                held[name] = own if is_new else held[name] | own
                held_far[name] = own_far if is_new else held_far[name] | own_far
            continue
        for name in handles:
            own |= held[name]
            own_far |= held_far[name]
        reads = op.type == READ or op.type in WHOLE_READS
        if not reads and family_of(op.type) not in _ARITHMETIC:
            own_far |= own
        direct[op.name], far[op.name] = own, own_far
    return found


def _all_of(known: dict[str, int], op: Op) -> int:
    """The bits of all that an op takes."""
    bits = 0
    for value in op.inputs:
        bits |= known.get(value.op, 0)
    return bits
