"""Ops put into a step before its gradients are summed."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tf_wu_shard.errors import WuShardError
from tf_wu_shard.graph.builder import Emitter, GraphBuilder, graph_def_of
from tf_wu_shard.graph.nodes import rewired, with_operands, with_values
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import VariableRef
from tf_wu_shard.step.reductions import GradientReduction
from tf_wu_shard.step.step import PerReplica, Step


class StepEdit:
    """Collects what one pass changes in a step; the step itself stays as it is."""

    def __init__(self, step: Step) -> None:
        """Starts with nothing changed.

        Args:
            step: The step.
        """
        self._step = step
        self._view = step.view
        self._builder = GraphBuilder(self._view.ops, self._view.dtype)
        self._bindings = dict(step.bindings)
        self._owners = step.owners
        self._refs: dict[str, VariableRef] = {}
        self._must_run: list[str] = []
        self._changes: dict[str, str | Callable[[], str]] = dict(step.changes)
        # By the name of an op, for the number of an operand, what takes its place.
        self._operands: dict[str, dict[int, Value]] = collections.defaultdict(dict)
        self._outputs = list(step.view.outputs)
        self._of_any_length: set[Value] = set()
        self._replaced_ops: dict[str, Sequence[Value | None]] = {}

    def at(self, copy: int, scope: str) -> Emitter:
        """Where ops of one copy of the replicas' program are added.

        Args:
            copy: Its position in `Replicas.local`.
            scope: The name scope of the ops.
        """
        return self._builder.at(self._step.replicas.devices[copy], scope)

    def handles(self, storage: PerReplica, name: str) -> list[Value]:
        """Gives the step variables that each replica has of its own.

        Args:
            storage: The variables; they live as long as the function.
            name: What to call them in the graph.

        Returns:
            Per copy of the replicas' program, the handle as its ops use it.

        Raises:
            WuShardError: The step has these variables already: nothing would order what two edits
                do to them.
        """
        if any(owner is storage for owner in self._owners):
            raise WuShardError(
                f"{name}: the step uses these variables already, and nothing would order one use"
                " after the other; give each sum variables of its own, under a name of their own"
            )
        found: list[Value] = []
        for number, copy in enumerate(self._step.replicas.local):
            at = self._builder.at("", f"{name}/own_{number}")
            placeholder, handle = self._step.dialect.shard_handle(at)
            packed = copy.replica is None
            self._bindings[placeholder.op] = (
                storage.packed_handle if packed else storage.handles[number]
            )
            self._refs[handle.op] = VariableRef(
                # No op has this name, so that no other variable goes by it.
                key=(found[0] if found else handle).op,
                replica=number,
                num_replicas=len(self._step.replicas.local),
                shape=None,
                dtype=0,
                mirrored=False,
                device=copy.device,
            )
            found.append(handle)
        self._owners = (*self._owners, storage)
        return found

    def replace_operand(
        self, reduction: GradientReduction, copy: int, value: Value, *, any_length: bool = False
    ) -> None:
        """Lets the replicas sum another value than a gradient.

        Whatever else reads the gradient goes on doing so.

        Args:
            reduction: One of the step's reductions.
            copy: Whose contribution; a position in `Replicas.local`.
            value: What is summed instead, of the operand's shape and element type.
            any_length: Whether its first dimension may be another, known when the step runs.

        Raises:
            WuShardError: The operand does not go into the sum directly.
        """
        operand = reduction.operands[copy]
        entering = [
            (op.name, slot)
            for op, slot in self._view.consumers(operand)
            if self._leads_to(op.name, reduction.carriers)
        ]
        if not entering:
            raise WuShardError(f"{operand} does not enter {reduction.carriers[0]} directly")
        for name, slot in entering:
            self.replace_input(name, slot, value)
        if any_length:
            self._of_any_length.add(value)

    def replace_input(self, op: str, slot: int, value: Value) -> None:
        """Lets an op take another value.

        Args:
            op: Its name.
            slot: The number of the operand.
            value: What it takes instead, of the operand's shape and element type.
        """
        self._operands[op][slot] = value

    def replace_output(self, number: int, value: Value) -> None:
        """Lets the function return another value.

        Args:
            number: Which of its outputs.
            value: What it returns instead, of the output's shape and element type.
        """
        self._outputs[number] = value

    def replace_op(self, name: str, *results: Value | None) -> None:
        """Takes an op away, and what is made of a result that nothing takes the place of.

        Args:
            name: The op's.
            results: What is read in the place of each of its results, of the same element type and,
                where the op's is known, the same shape; None for nothing. What waited for the op
                waits for the op that yields the first of them.
        """
        self._replaced_ops[name] = results

    def must_run(self, value: Value) -> None:
        """Makes an op run in every step though nobody reads its result."""
        self._must_run.append(value.op)

    def report(self, flag: str, change: str | Callable[[], str]) -> None:
        """Says in the step's report what is changed.

        Args:
            flag: The pass's.
            change: What it changes, in a few words such as "gradients rounded to bfloat16: 4"; it
                stands in the place of what was said of the flag before. What a run changes is
                called, each time that the report is asked for.
        """
        self._changes[flag] = change

    def done(self) -> Step:
        """The step with everything that was changed; the same one where nothing was."""
        step, view = self._step, self._view
        if not (self._builder.nodes or self._operands or self._replaced_ops):
            return step
        step.dialect.adopt(self._builder.nodes)
        gone, instead, waits = self._gone(), self._instead, self._waits
        stay = [op for op in view if op.name not in gone]
        nodes = [with_operands(op.node, self._operands.get(op.name, {})) for op in stay]
        if gone:
            nodes = [_without(with_values(node, instead), gone, waits) for node in nodes]
        outputs = [instead.get(value, value) for value in self._outputs]
        must_run = [name for name in view.control_outputs if name not in gone]
        must_run += waits.values()
        shapes = self._shapes()
        after = view.with_graph(
            graph_def_of([*nodes, *self._builder.nodes], view.graph_def),
            shape_of=lambda value: shapes.get(value.op),
            outputs=outputs,
            control_outputs=(*dict.fromkeys([*must_run, *self._must_run]),),
        ).with_variables({**view.variables, **self._refs})
        return dataclasses.replace(
            step,
            captured=step.captured.with_view(after),
            bindings=self._bindings,
            owners=self._owners,
            is_changed=True,
            changes=self._changes,
        )

    @property
    def _instead(self) -> dict[Value, Value]:
        """What is read in the place of the results of ops that go."""
        return {
            Value(name, number): value
            for name, results in self._replaced_ops.items()
            for number, value in enumerate(results)
            if value is not None
        }

    @property
    def _waits(self) -> dict[str, str]:
        """For ops that go, by name, what is waited for in their place, if anything."""
        firsts = ((name, next(filter(None, r), None)) for name, r in self._replaced_ops.items())
        return {name: value.op for name, value in firsts if value is not None}

    def _gone(self) -> set[str]:
        """Names of the ops that go, and of those that are made of them.

        Raises:
            WuShardError: One of these has an effect, or is returned.
        """
        gone, instead = {*self._replaced_ops}, self._instead
        for op in self._view:
            if any(value.op in gone and value not in instead for value in op.inputs):
                if op.name not in gone and op.name in self._view.effects:
                    raise WuShardError(f"{op.name} needs what is taken out of the step")
                gone.add(op.name)
        for value in self._outputs:
            if value.op in gone and value not in instead:
                raise WuShardError(f"{value.op}, which is returned, is taken out of the step")
        return gone

    def _leads_to(self, name: str, carriers: tuple[str, ...]) -> bool:
        """Whether an op is one of those that carry a sum, or packs what they sum."""
        if name in carriers:
            return True
        packs = self._view.consumers(Value(name))
        return any(op.name in carriers for op, _ in packs)

    def _shapes(self) -> dict[str, Any]:
        """The shapes of values that stand for others, which they share."""
        found: dict[str, Any] = {}
        for name, operands in self._operands.items():
            for slot, value in operands.items():
                if value not in self._of_any_length:
                    found[value.op] = self._view.shape(self._view.ops[name].inputs[slot])
        for old, new in zip(self._view.outputs, self._outputs, strict=True):
            if old != new:
                found[new.op] = self._view.shape(old)
        return found


def _without(node: Any, gone: set[str], waits: Mapping[str, str]) -> Any:
    """A node that waits for no op that goes, but for what is waited for in its place, if anything.

    Args:
        node: The node.
        gone: Names of the ops that go.
        waits: For some of them, what is waited for in their place.
    """
    inputs = []
    for text in node.input:
        before = text[1:] if text.startswith("^") else ""
        if before not in gone:
            inputs.append(text)
        elif before in waits:
            inputs.append(f"^{waits[before]}")
    return rewired(node, inputs)
