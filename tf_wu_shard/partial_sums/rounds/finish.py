"""A step's update alone, for sums that came too late for any of its steps.

It is cut out of the step: what writes variables with the sums of gradients, and what that needs. It
is no step of its own: what counts steps stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tf_wu_shard.graph.nodes import rewired
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.reachable import reachable
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.rules.writes import WRITES
from tf_wu_shard.step.gradient_shapes import with_ensured
from tf_wu_shard.step.reductions import EnsuredShape
from tf_wu_shard.step.step import Step
from tf_wu_shard.tensorflow_private.graph_rebuilding import NewBody, make_function

# Beside variables, nothing that an update needs has a state.
_ON_VARIABLES = frozenset({READ, *WRITES})


def update_of(
    step: Step,
    sums: Sequence[Value],
    weights: Collection[str],
    ensured: Iterable[EnsuredShape],
) -> Callable[[Sequence[Any]], None] | None:
    """What updates the weights of a step with other sums.

    Args:
        step: The step.
        sums: The sums of gradients that its update takes.
        weights: The weights, each by its key or its name.
        ensured: The shapes of gradients that the graph leaves open.

    Returns:
        It takes a tensor for each of `sums`; None where an update needs more than them, variables
        and constants, or is not seen to write all weights.
    """
    view = with_ensured(step.view, ensured)
    # What a function around this one computes is known to its call alone.
    handles = {
        placeholder.op.name: handle
        for handle, placeholder in step.graph.captures
        if not tf.is_symbolic_tensor(handle)
    }
    writes = _updates(view, sums)
    needed = {*reachable(writes, lambda name: _before(view, view.ops[name], sums, writes))}
    ops = [op for op in view if op.name in needed]
    refs = (view.variables.get(view.ops[one].inputs[0].op) for one in writes)
    found = [ref for ref in refs if ref is not None]
    written = {name for ref in found for name in (ref.key, ref.name)}
    # Of a table the name may be that of a slot, which is written before it.
    is_whole = {*weights} <= written and len(weights) <= len({r.key for r in found if r.trainable})
    if not is_whole or not all(_is_known(view, op, handles) for op in ops):
        return None
    given = {value: Value(f"{value.op}_{value.index}_given") for value in sums}
    nodes = [
        tf.compat.v1.NodeDef(
            name=placeholder.op,
            op="Placeholder",
            attr={"dtype": tf.compat.v1.AttrValue(type=view.dtype(value))},
        )
        for value, placeholder in given.items()
    ]
    # The function is made among all inputs that the step has.
    others = {tensor.op.name for tensor in step.graph.inputs} - needed
    nodes += [op.node for op in view if op.name in others]
    for op in ops:
        shape = _fixed_shape(view, op)
        if shape is not None:
            nodes.append(_constant(op.name, shape, view.dtype(Value(op.name))))
            continue
        waits = [f"^{name}" for name in op.controls if name in needed]
        inputs = [view.unbundled(value) for value in op.inputs]
        nodes.append(
            rewired(op.node, [*(str(given.get(value, value)) for value in inputs), *waits])
        )
    used = [op.name for op in ops if op.name in handles]
    arguments = [*used, *(placeholder.op for placeholder in given.values())]
    body = NewBody(nodes, [], sorted(writes), step.captured.functions.values())
    function = make_function(
        step.graph, body, arguments, {placeholder.op: None for placeholder in given.values()}
    )
    captured = [handles[name] for name in used]

    def update(gradients: Sequence[Any]) -> None:
        function.call_flat(*captured, *map(tf.convert_to_tensor, gradients))

    return update


def _updates(view: GraphView, sums: Sequence[Value]) -> set[str]:
    """Names of the ops that write variables with sums, or with what was written with them before.

    An optimizer writes its momentum, reads it again, and writes the weight.
    """
    found: set[str] = set()
    values = [*sums]
    while True:
        writes = [op for op in _following(view, values) if op.type in WRITES]
        found |= {op.name for op in writes}
        written = {op.inputs[0]: op.name for op in writes}
        again = [
            Value(op.name)
            for op in view
            if op.type == READ and written.get(op.inputs[0]) in op.controls
        ]
        if {*again} <= {*values}:
            return found
        values += again


def _following(view: GraphView, values: Sequence[Value]) -> Iterator[Op]:
    """The ops that compute with some values, or with what is computed from them."""

    def results(value: Value) -> list[Value]:
        return [result for op, _ in view.consumers(value) for result in view.results(op.name)]

    for value in reachable(values, results):
        yield from (op for op, _ in view.consumers(value))


def _before(view: GraphView, op: Op, sums: Sequence[Value], writes: set[str]) -> Iterator[str]:
    """What an op computes with, and what else on variables comes before it."""
    if _fixed_shape(view, op) is not None:
        return
    inputs = (view.unbundled(value) for value in op.inputs)
    yield from (value.op for value in inputs if value not in sums)
    for name in op.controls:
        if name in writes or view.ops[name].type == READ:
            yield name


def _fixed_shape(view: GraphView, op: Op) -> tuple[int, ...] | None:
    """What an op yields that asks for the shape of a gradient, which is its weight's."""
    return view.shape(op.inputs[0]) if op.type == "Shape" else None


def _constant(name: str, value: Sequence[int], dtype: int) -> Any:
    tensor = tf.make_tensor_proto(value, tf.as_dtype(dtype), [len(value)])
    attributes = {
        "dtype": tf.compat.v1.AttrValue(type=dtype),
        "value": tf.compat.v1.AttrValue(tensor=tensor),
    }
    return tf.compat.v1.NodeDef(name=name, op="Const", attr=attributes)


def _is_known(view: GraphView, op: Op, handles: Mapping[str, Any]) -> bool:
    if op.type == "Placeholder":
        return op.name in handles
    return op.type in _ON_VARIABLES or op.name not in view.effects
