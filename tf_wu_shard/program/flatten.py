"""Brings what a step does to variables into one graph, out of the functions that it calls.

`strategy.run(a_tf_function)`, a layer that is a `tf.function`, a gradient of its own: for the
compiler of a TPU all these are one program, so they are written out before the analysis looks.
Only calls that take a variable or sum over replicas are; others compute with values alone. Loops
and branches stay, and take the values of the variables that they only read.

Elsewhere a call is written out where it applies reduced gradients alone: the reduction and the
update then stand in one graph.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Iterable, Iterator, Set
from typing import Any

import tensorflow as tf

from tf_wu_shard import refusals
from tf_wu_shard.graph.calls import LOOPS, PLAIN_CALLS, callee_names, first_argument, is_call
from tf_wu_shard.graph.dimensions import Dims
from tf_wu_shard.graph.nodes import control_inputs, waiting, with_inputs
from tf_wu_shard.graph.op import Value, attribute_in
from tf_wu_shard.graph.view import GraphView, VariableRef
from tf_wu_shard.grounds.dialect import CarriedReduction
from tf_wu_shard.grounds.tpu.ops import PROGRAM, SUM, program_of
from tf_wu_shard.program.called_graph import CalledGraph
from tf_wu_shard.program.compiled_calls import is_compiled, not_compiled_again, unmark
from tf_wu_shard.program.inlining import Body, inline
from tf_wu_shard.program.lifting import HandleNeededError, taking_values
from tf_wu_shard.program.reduced_operands import calling_with_reduced_operands
from tf_wu_shard.program.remaining_nodes import only_waiting
from tf_wu_shard.program.specialise import Specialiser
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.rules.variables import READ, Access
from tf_wu_shard.step.accesses import access_by_callee, ignores, writes_in_call
from tf_wu_shard.step.capture import Captured

# How the replicas of a TPU program sum.
SUMS = frozenset({SUM})


def write_out(graph: CalledGraph, captured: Captured, program: str) -> Captured:
    """The same function with the calls that matter written out.

    Args:
        graph: The function.
        captured: Its graph and variables.
        program: Name of the TPU program in it, or "" where all of it is inside of one.

    Returns:
        The view to work on; `captured` itself where there is nothing to write out.
    """
    flat = _Flat(graph, captured, program)
    return flat.result() if flat.write_out() else captured


def write_out_updates(
    graph: CalledGraph,
    captured: Captured,
    sums: Callable[[GraphView], Iterable[CarriedReduction]],
    in_shards: Set[str],
    shards: Set[str] = frozenset(),
    *,
    updates: bool = True,
) -> Captured:
    """The same function with the calls that apply reduced gradients written out.

    Args:
        graph: The function, in which no TPU program is.
        captured: Its graph and variables.
        sums: Finds its gradient reductions.
        in_shards: Keys of slots that live in shards: whatever is called with one is written out.
        shards: Placeholders of shards: what is called with one alone is sharded already.
        updates: Whether anything else is, and what XLA compiles, which is then handed to it again.

    Returns:
        The view to work on; `captured` itself where there is nothing to write out.
    """
    view = captured.view
    held = {handle for handle, ref in view.variables.items() if ref.key in in_shards}
    calls = view.of_types(*PLAIN_CALLS)
    # What was redirected to the shards may still hand the whole slot to a loop that ignores it.
    chosen = {
        op.name
        for op in calls
        if any(v.op in held and not ignores(view, op.node, n) for n, v in enumerate(op.inputs))
    }
    if updates and any(writes_in_call(view, op) for op in calls):
        reached = calling_with_reduced_operands(view, "", sums(view), PLAIN_CALLS)
        taking = [op for op in reached if shards.isdisjoint(value.op for value in op.inputs)]
        chosen |= {op.name for op in taking if writes_in_call(view, op)}
    if not chosen:
        return captured
    flat = _Flat(graph, captured, "", chosen, recompiled=updates)
    found = flat.result() if flat.write_out() else captured
    return dataclasses.replace(found, kept_branches=flat.kept) if flat.kept else found


def lift(graph: CalledGraph, captured: Captured, program: str) -> Captured:
    """The same function with the reads of loops and branches brought out.

    Args:
        graph: The function.
        captured: Its graph, calls written out, and variables. What its view says to work part by
            part keeps its variables.
        program: Name of the TPU program in it, or "" where all of it is inside of one.

    Returns:
        The view to work on; `captured` itself where there is nothing to bring out.
    """
    flat = _Flat(graph, captured, program)
    return flat.result() if flat.lift() else captured


class _Flat:
    def __init__(
        self,
        graph: CalledGraph,
        captured: Captured,
        program: str,
        chosen: Set[str] | None = None,
        *,
        recompiled: bool = False,
    ) -> None:
        """Begins.

        Args:
            graph: The function.
            captured: Its graph and variables.
            program: Name of the TPU program in it.
            chosen: Names of the calls to write out, with those in what they call; None for all.
            recompiled: Whether those of them that XLA compiles are, which is then handed to it
                again.
        """
        self._chosen = chosen
        self._recompiled = recompiled
        self._graph = graph
        self._captured = captured
        self._program = program.encode()
        self._nodes: tuple[Any, ...] = tuple(op.node for op in captured.view)
        self._outputs = captured.view.outputs
        self._control_outputs = captured.view.control_outputs
        self._handles = {
            name: ref
            for name, ref in captured.view.variables.items()
            if ref.key in captured.variables
        }
        self._sums = reaching(captured.view, SUMS)
        self._specialiser = Specialiser(graph, captured)
        # For each new node, the function that it stands in, and its name there.
        self._from: dict[str, tuple[CalledGraph, str]] = {}
        self._written_out: set[str] = set()
        # Why calls that matter are not written out, by their names.
        self.kept: dict[str, Refusal] = {}
        self._values: dict[str, VariableRef] = {}

    def _is_here(self, node: Any) -> bool:
        return not self._program or program_of(node) == self._program

    def _adopt(self, node: Any) -> None:
        if self._chosen is None:
            unmark(node)
        if self._program:
            node.attr[PROGRAM].s = self._program

    def write_out(self) -> bool:
        """Writes out calls until none that matters is left; whether there were any."""
        found = False
        while calls := self._calls():
            found = True
            inlined = inline(self._nodes, {n: b for n, (_, b) in calls.items()}, self._adopt)
            for name, (call, inner) in inlined.origins.items():
                self._from[name] = (calls[call][0], inner)
            self._nodes = inlined.nodes
            self._outputs = tuple(inlined.value(v) for v in self._outputs)
            ends = (inlined.ends.get(name, name) for name in self._control_outputs)
            self._control_outputs = tuple(dict.fromkeys(ends))
        return found

    def _calls(self) -> dict[str, tuple[CalledGraph, Body]]:
        """The calls that matter, by the name of the calling op: what they call."""
        found: dict[str, tuple[CalledGraph, Body]] = {}
        for node in self._nodes:
            if node.op not in PLAIN_CALLS or not self._is_here(node):
                continue
            if self._chosen is not None and node.name not in (self._chosen | self._from.keys()):
                continue
            name = attribute_in(node.attr, "f").func.name
            if not any(text in self._handles for text in node.input) and not self._sums(name):
                continue
            called = self._graph.inner(name, self._specialiser.functions)
            if called is None or node.name in self.kept:
                continue
            if self._chosen is not None and is_compiled(node):
                op_type = not_compiled_again(called.body().nodes) if self._recompiled else node.op
                if op_type is not None:
                    self.kept[node.name] = refusals.Calls.COMPILED_WITH.at(
                        node.name, function=name, op_type=op_type
                    )
                    continue
            body = called.body(len(attribute_in(node.attr, "Tout").list.type))
            if len(body.arguments) == len(attribute_in(node.attr, "Tin").list.type):
                found[node.name] = (called, body)
                self._written_out.add(name)
        return found

    def lift(self) -> bool:
        """Hands loops and branches the values of what they only read; whether there are any."""
        before = self._nodes
        self._nodes = tuple(map(self._with_known_shape, self._without_returned_handles()))
        nodes: list[Any] = []
        for node in self._nodes:
            if is_call(node.op) and self._is_here(node):
                nodes += self._lifted(node)
            else:
                nodes.append(node)
        self._nodes = tuple(nodes)
        return any(one is not other for one, other in zip(nodes, before, strict=False))

    def _with_known_shape(self, node: Any) -> Any:
        """A node, a constant where it asks for a variable's shape; gradients of loops do."""
        ref = self._handles.get(node.input[0]) if node.op == "VariableShape" else None
        if ref is None or ref.shape is None:
            return node
        dtype = attribute_in(node.attr, "out_type").type
        new = tf.compat.v1.NodeDef(name=node.name, op="Const", input=node.input[1:])
        new.attr["dtype"].type = dtype
        shape = tf.make_tensor_proto(ref.shape, tf.as_dtype(dtype))
        new.attr["value"].tensor.CopyFrom(shape)
        if self._is_here(node):
            self._adopt(new)
        return new

    def _without_returned_handles(self) -> Iterator[Any]:
        """The nodes, where a handle is taken from where it enters and not from what hands it on.

        A gradient of a loop takes handles from its end; those of several gradients, from a function
        around it that returns them by an Identity each.
        """
        same: dict[str, str] = {}
        for node in self._nodes:
            taken = [text for text in node.input if text in same]
            if taken:
                # What took it from the end came after the loop.
                loops = sorted({text.partition(":")[0] for text in taken})
                node = waiting(with_inputs(node, same), loops)
            passed_on = node.op == "Identity" and node.input[0] in self._handles
            if passed_on and self._is_here(node) and Value(node.name) not in self._outputs:
                same[node.name] = node.input[0]
                node = only_waiting(node, control_inputs(node))
            yield node
            if node.op in LOOPS and self._is_here(node):
                handles = [(n, text) for n, text in enumerate(node.input) if text in self._handles]
                for number, text in handles:
                    if self._hands_back(attribute_in(node.attr, "body").func.name, number):
                        same[str(Value(node.name, number))] = text

    def _hands_back(self, name: str, number: int) -> bool:
        """Whether a loop's body returns an argument as it is."""
        definition = self._captured.view.functions[name]
        result = definition.ret[definition.signature.output_arg[number].name]
        return bool(result == definition.signature.input_arg[number].name)

    def _lifted(self, node: Any) -> list[Any]:
        operands = {
            slot: self._handles[text]
            for slot, text in enumerate(node.input)
            if text in self._handles and self._only_reads(node, slot)
        }
        part_wise = self._captured.view.part_wise.get(node.name, {})
        operands = {slot: ref for slot, ref in operands.items() if ref.key not in part_wise}
        if not operands:
            return [node]
        try:
            new, _ = taking_values(node, operands, self._specialiser.reading)
        except HandleNeededError:
            return [node]
        reads = []
        for slot, ref in operands.items():
            read = tf.compat.v1.NodeDef(name=f"{node.name}/wu_shard_read_{slot}", op=READ)
            read.input.append(node.input[slot])
            read.input.extend(control_inputs(node))
            read.attr["dtype"].type = ref.dtype
            self._adopt(read)
            self._values[read.name] = ref
            new.input[slot] = read.name
            reads.append(read)
        return [*reads, new]

    def _only_reads(self, node: Any, slot: int) -> bool:
        """Whether all functions of a loop or branch read a variable as a value, and no more."""
        ref = self._handles[node.input[slot]]
        argument = slot - first_argument(node.op)
        if argument < 0 or not ref.mirrored or ref.shape is None:
            return False
        names = callee_names(node)
        found = {access_by_callee(self._captured.view, name, argument) for name in names}
        return Access.READ in found and found <= {Access.READ, Access.PASSED_ON}

    def result(self) -> Captured:
        """The function as it is now."""
        before = dataclasses.replace(
            self._captured, written_out=self._captured.written_out | self._written_out
        )
        return before.with_nodes(
            self._nodes,
            self._specialiser.functions,
            shape_of=self._shape,
            outputs=self._outputs,
            control_outputs=self._control_outputs,
        )

    def _shape(self, value: Value) -> Dims | None:
        if value.op in self._values:
            return self._values[value.op].shape
        if value.op in self._from:
            called, name = self._from[value.op]
            return called.static_shape(name, value.index)
        return None


def reaching(view: GraphView, op_types: Container[str]) -> Callable[[str], bool]:
    """Finds out whether a function, or one that it calls, has ops of some types."""
    known: dict[str, bool] = {}

    def ask(name: str) -> bool:
        if name not in known:
            known[name] = False  # a function that calls itself adds nothing of its own
            definition = view.functions.get(name)
            known[name] = any(
                node.op in op_types
                or (is_call(node.op) and any(ask(n) for n in callee_names(node)))
                for node in (definition.node_def if definition is not None else ())
            )
        return known[name]

    return ask
