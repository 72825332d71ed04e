"""Updates in branches and loops of a step in a model's files, brought in sight as the pass does it.

Branches that only apply gradients are written out; other branches and loop bodies that train are
steps of their own, with what enters them from outside. In a step traced on one device nothing marks
its gradients: a branch that is handed tensors beside variables may apply them. And where replicas
would compute a branch's predicate from their own batches (has a gradient overflowed?), they must
agree on it: it is taken for a value that all of them share.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from tf_wu_shard.errors import ModelFileError
from tf_wu_shard.graph.calls import BRANCHES, PLAIN_CALLS, callee_names, first_argument, is_call
from tf_wu_shard.graph.nodes import copy_of
from tf_wu_shard.graph.op import Op
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.dialect import CarriedReduction
from tf_wu_shard.grounds.tpu.cluster import Cluster
from tf_wu_shard.inspection.reading.aliased_handles import by_one_operand
from tf_wu_shard.inspection.reading.calls import WRITERS
from tf_wu_shard.inspection.reading.checked_nodes import is_type
from tf_wu_shard.inspection.reading.defined_graph import DefinedGraph, Definitions
from tf_wu_shard.program.called_graph import CalledGraph
from tf_wu_shard.program.flatten import reaching, write_out
from tf_wu_shard.program.inlining import Body
from tf_wu_shard.program.inside import differs
from tf_wu_shard.program.nesting import Looking, Nested, nested_programs
from tf_wu_shard.program.prepare import prepared
from tf_wu_shard.step.accesses import ignores
from tf_wu_shard.step.capture import Captured
from tf_wu_shard.tensorflow_private import function_graph

# Branches times ops: less than a minute's work.
_MOST_WORK = 3_000_000


def branches_in_sight(
    view: GraphView, functions: Mapping[str, Any], program: Cluster | None, num_replicas: int
) -> tuple[Captured, tuple[Nested, ...]]:
    """Writes branches out, and finds those branches and loop bodies that are steps of their own.

    Args:
        view: The step.
        functions: The FunctionDefs of its model, by name; their calls come to an end.
        program: The TPU program that it is; None of a step traced on one device.
        num_replicas: How many replicas run it, or would.

    Returns:
        The step to analyse, and what is nested in it.

    Raises:
        ModelFileError: A function makes no sense, or there are too many branches.
    """
    # With values of unknown types nothing can be done in their place.
    known = {ref.key: ref for ref in view.variables.values() if is_type(ref.dtype)}
    captured = Captured(view, known)
    if not any(_may_train(view, op) for op in view):
        return captured, ()
    _check_work(view)

    def op_def(op_type: str) -> Any | None:
        called = functions.get(op_type)
        return function_graph.op_def(op_type) if called is None else called.signature

    nowhere = Body((), (), (), ())
    graph = DefinedGraph(Definitions(functions, op_def), None, nowhere)
    captured = by_one_operand(graph, captured)
    if program is not None:
        captured = prepared(graph, captured, program.name, num_replicas)
        return captured, nested_programs(graph, captured, program.name, num_replicas)
    captured = _prepared_alone(graph, captured, "", num_replicas)
    looking = Looking(WRITERS, _prepared_alone)
    return captured, nested_programs(graph, captured, "", num_replicas, looking)


def _check_work(view: GraphView) -> None:
    """Looks how much work it is: each branch is written out, or read, beside all of the graph.

    Raises:
        ModelFileError: So much that it would not end.
    """
    writes = reaching(view, WRITERS)
    functions = view.functions.values()
    size = len(view.ops) + sum(len(function.node_def) for function in functions)
    nodes = itertools.chain((op.node for op in view), *(f.node_def for f in functions))
    training = sum(
        is_call(node.op)
        and node.op not in PLAIN_CALLS
        and any(writes(name) for name in callee_names(node))
        for node in nodes
    )
    if training * size > _MOST_WORK:
        raise ModelFileError(
            f"{training} branches and loops write variables, too many to look at among {size} ops"
        )


def _may_train(view: GraphView, op: Op) -> bool:
    """Whether an op hands variables to functions that look at them."""
    return is_call(op.type) and any(
        value.op in view.variables and not ignores(view, op.node, slot)
        for slot, value in enumerate(op.inputs)
    )


def _prepared_alone(
    graph: CalledGraph, captured: Captured, program: str, num_replicas: int
) -> Captured:
    """As `prepared`, of a step that was traced on one device."""
    # Branches are to be seen that stand in what it calls.
    captured = _agreeing(write_out(graph, captured, program), num_replicas)
    return prepared(graph, captured, program, num_replicas, _handed_to_branches)


def _handed_to_branches(view: GraphView) -> Iterator[CarriedReduction]:
    """The tensors that branches are handed beside variables, each taken for a summed gradient."""
    for op in view:
        if op.type in BRANCHES and any(value.op in view.variables for value in op.inputs):
            for value in op.inputs[first_argument(op.type) :]:
                if value.op not in view.variables and tf.as_dtype(view.dtype(value)).is_floating:
                    yield CarriedReduction((value,), (value,), 1, (value.op,))


def _agreeing(captured: Captured, num_replicas: int) -> Captured:
    """The same graph, in which replicas agree on the turns that they take where they train."""
    view = captured.view
    differ = differs(view, num_replicas)
    nodes: list[Any] = []
    agreed: set[str] = set()
    for op in view:
        node = op.node
        if op.type in BRANCHES and _may_train(view, op) and differ(op.inputs[0]):
            same = tf.compat.v1.NodeDef(name=f"{op.name}/agreed", op="Placeholder")
            same.attr["dtype"].type = view.dtype(op.inputs[0])
            node = copy_of(op.node)
            node.input[0] = same.name
            nodes.append(same)
            agreed.add(same.name)
        nodes.append(node)
    if not agreed:
        return captured
    return captured.with_nodes(
        nodes,
        captured.functions,
        shape_of=lambda value: () if value.op in agreed else None,
    )
