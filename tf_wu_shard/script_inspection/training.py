"""Whether a traced function trains: the question at which a script is stopped.

A function trains where it writes a trainable variable from what is more than arithmetic on weights:
a gradient depends on a weight by way of a layer, enters as an argument, or was kept in a variable
that is not trained. To set weights, to initialise them or to average them trains nothing. What it
asks errs on the safe side: a function that applies a norm to its own weights counts as one that
trains, and is not run. Of a TPU's program it knows nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tf_wu_shard.graph.calls import callees, first_argument, is_call
from tf_wu_shard.rules.registry import family_of
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.rules.writes import WRITING, is_fused_update, is_plain_write
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
    trained = {id(p): p for h, p in handles if id(h) in weights}
    return any(_is_trained(graph, placeholder, trained, set()) for placeholder in trained.values())


def _trainable_handles(graph: Any) -> set[int]:
    variables = [v for v in graph.variables if v.trainable]
    components = [c for v in variables for c in getattr(v, "values", (v,))]
    return {id(original_handle(component)) for component in components}


def _is_trained(graph: Any, handle: Any, trained: Mapping[int, Any], seen: set[int]) -> bool:
    """Whether a graph writes a variable as training does.

    Args:
        graph: A FuncGraph.
        handle: The variable's handle in it.
        trained: The handles in it of all trainable variables, by their ids.
        seen: Ids of the handles that were asked about.
    """
    if id(handle) in seen:
        return False
    seen.add(id(handle))
    for op in handle.consumers():
        if op.type in WRITING and op.inputs[0] is handle:
            if not is_plain_write(op.type) or _is_update(graph, op, trained):
                return True
        elif is_call(op.type):
            for inner, passed in _called(graph, op):
                if inner is None:
                    return True
                own = {id(p): p for value, p in passed if id(value) in trained}
                here = [p for value, p in passed if value is handle]
                if any(_is_trained(inner, p, own, seen) for p in here):
                    return True
    return False


def _called(graph: Any, op: Any) -> Iterator[tuple[Any, list[tuple[Any, Any]]]]:
    """The FuncGraphs that an op calls, with what it hands over and what that is there.

    None stands for one that is not known.
    """
    operands = list(op.inputs)[first_argument(op.type) :]
    for _, names in callees(op.node_def):
        for inner in (function_graph.inner_graph(graph, name) for name in names):
            passed = [] if inner is None else list(zip(operands, inner.inputs, strict=False))
            yield inner, passed


def _is_update(graph: Any, write: Any, trained: Mapping[int, Any]) -> bool:
    """Whether what is written to a variable follows from a gradient, see above."""
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
            handle = value.op.inputs[0]
            read |= value.shape.rank != 0
            given |= value.shape.rank != 0 and id(handle) not in trained
            stack += _written_before(handle)
            continue
        elif kind not in _SAME and not is_plain_write(kind):
            arithmetic = True
            computed |= family_of(kind) is None
            # An iterator's elements are the batch.
            given |= kind.startswith("IteratorGetNext")
        stack += [tensor for tensor in value.op.inputs if tensor.dtype.name != "resource"]
    return (given and arithmetic) or (read and computed)


def _written_before(handle: Any) -> list[Any]:
    """What a variable was written before it is read: a slot, say, with the gradient."""
    writes = [op for op in handle.consumers() if op.type in WRITING]
    fused = [t for op in writes if is_fused_update(op.type) for t in op.inputs]
    plain = [t for op in writes if is_plain_write(op.type) for t in op.inputs[1:]]
    return [tensor for tensor in (*plain, *fused) if tensor.dtype.name != "resource"]
