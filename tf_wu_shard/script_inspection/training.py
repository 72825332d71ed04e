"""Whether a traced function trains: the question at which a script is stopped.

A function trains where it writes a trainable variable from what is more than arithmetic on held
values: a gradient depends on a weight by way of a layer, or enters as an argument. To set weights,
to initialise them or to average them trains nothing. What it asks errs on the safe side: a function
that applies a norm to its own weights counts as one that trains, and is not run. Of a TPU's program
it knows nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tf_wu_shard.analysis.accesses import callees, first_argument, is_call
from tf_wu_shard.concern import WRITING
from tf_wu_shard.rules.fused import FUSED
from tf_wu_shard.rules.registry import family_of
from tf_wu_shard.rules.variables import READ, WRITES
from tf_wu_shard.tensorflow_private import function_graph
from tf_wu_shard.tensorflow_private.distributed_variables import original_handle

_PLAIN_WRITE = "AssignVariableOp"

# What hands a value on as it is.
_SAME = frozenset({"Identity", "IdentityN", "Cast", "Reshape", "Placeholder", "Const", READ})


def trains(graph: Any) -> bool:
    """Whether a FuncGraph, with all that it calls, trains.

    Args:
        graph: The FuncGraph, complete.
    """
    if function_graph.is_branch_or_body(graph):
        return False
    weights = _trainable_handles(graph)
    handles = function_graph.captured_handles(graph)
    return any(id(h) in weights and _is_trained(graph, p, set()) for h, p in handles)


def _trainable_handles(graph: Any) -> set[int]:
    variables = [v for v in graph.variables if v.trainable]
    components = [c for v in variables for c in getattr(v, "values", (v,))]
    return {id(original_handle(component)) for component in components}


def _is_trained(graph: Any, placeholder: Any, seen: set[int]) -> bool:
    """Whether a graph writes the variable whose handle this is, as training does."""
    if id(placeholder) in seen:
        return False
    seen.add(id(placeholder))
    for op in placeholder.consumers():
        if op.type in WRITING and op.inputs[0] is placeholder:
            if op.type not in WRITES or _is_update(graph, op):
                return True
        elif is_call(op.type):
            for inner, argument in _passed_to(graph, op, placeholder):
                if inner is None or _is_trained(inner, argument, seen):
                    return True
    return False


def _passed_to(graph: Any, op: Any, value: Any) -> Iterator[tuple[Any, Any]]:
    """The FuncGraphs that a call hands a value to, with what it is there; None where not known."""
    first = first_argument(op.type)
    places = [slot - first for slot, taken in enumerate(op.inputs) if taken is value]
    for _, names in callees(op.type, op.node_def.attr):
        for inner in (function_graph.inner_graph(graph, name) for name in names):
            for place in places:
                yield inner, None if inner is None else inner.inputs[place]


def _is_update(graph: Any, write: Any) -> bool:
    """Whether what is written to a variable follows from the batch or, by a layer, a weight."""
    held = {id(p) for e, p in graph.captures if not hasattr(e, "graph")}
    stack, seen = list(write.inputs[1:]), set()
    arithmetic = write.type != _PLAIN_WRITE
    computed = given = read = False
    while stack:
        value = stack.pop()
        if value.op.name in seen:
            continue
        seen.add(value.op.name)
        kind = value.op.type
        if kind == "Placeholder":
            given |= id(value) not in held and value.shape.rank != 0
        elif kind == READ:
            read |= value.shape.rank != 0
            stack += _written_before(value.op.inputs[0])
            continue
        elif kind not in _SAME and kind not in WRITES:
            arithmetic = True
            computed |= family_of(kind) is None
            # An iterator's elements are the batch.
            given |= kind.startswith("IteratorGetNext")
        stack += [tensor for tensor in value.op.inputs if tensor.dtype.name != "resource"]
    return (given and arithmetic) or (read and computed)


def _written_before(handle: Any) -> list[Any]:
    """What a variable was written before it is read: a slot, say, with the gradient."""
    writes = [op for op in handle.consumers() if op.type in WRITING]
    fused = [t for op in writes if op.type in FUSED for t in op.inputs]
    plain = [t for op in writes if op.type in WRITES for t in op.inputs[1:]]
    return [tensor for tensor in (*plain, *fused) if tensor.dtype.name != "resource"]
