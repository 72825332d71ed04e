"""What an update computes, going backward from its writes, and where each value of it lies.

The slice ends where values do not depend on the shard: at other variables, at gradients that update
something else, and at sums over elements of all shards, whose results are the same everywhere. It
ends, too, at what every replica computes of whole weights, as a layer does that normalizes its
weight before it uses it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence, Set

from tf_wu_shard import refusals
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import VariableRef
from tf_wu_shard.placement import Partial, Placement, Replicated, Sharded, Whole
from tf_wu_shard.reachable import reachable
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.rules import registry
from tf_wu_shard.rules.operation import LocalOp, Operation
from tf_wu_shard.rules.registry import Family, family_of, operation_of
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.rules.writes import WRITES
from tf_wu_shard.step.variable_values import VariableValues
from tf_wu_shard.weight_update.analysis.reduced_graph import ReducedGraph


class UpdateSlice:
    """The backward slice from the writes on replica 0, with the placement of every value.

    Attributes:
        size: Elements of every weight of the update, and of its gradients.
        sizes: Elements of its variables, each number once.
        body: After `place`: the ops that run on shards, each after its operands.
        sums: After `place`: those of them that sum over several shards, by name.
        locals: After `place`: what a shard computes in the place of those for which that is not the
            same op, by name.
        placements: After `place`: where each value lies. What is Replicated is computed outside.
        read_besides: After `place`: keys of the other variables that the slice reads.
    """

    # Types of ops whose results are their operands, one for one.
    _renaming = frozenset({"IdentityN"})

    def __init__(
        self,
        graph: ReducedGraph,
        keys: tuple[int, ...],
        touching: dict[str, list[VariableValues]],
        sums: Sequence[Op],
        of_whole_weights: Set[str] = frozenset(),
    ) -> None:
        """Prepares the slice.

        Args:
            graph: The graph.
            keys: The reductions that feed the update.
            touching: The values of each variable of the update, by replica.
            sums: The sums over the gradients, from which it starts besides the writes.
            of_whole_weights: Names of ops that stay outside, see `computed_of_weights`.
        """
        view, handles = graph.view, graph.handles
        self._view = view
        self._names = graph.names
        self._keys = keys
        self._external_reductions = sums
        self._outside = of_whole_weights
        self._own_handles = {handles[v][0] for v in touching}
        self._writes = [op for values in touching.values() for op in values[0].own_writes]
        self._written_by = {op.name for op in self._writes}
        shapes = {view.variables[handles[v][0]].shape for v in touching}
        self.sizes = {math.prod(s or ()) for s in shapes}
        self.size = max(self.sizes)
        self.body: list[Op] = []
        self.sums: dict[str, Partial] = {}
        self.locals: dict[str, LocalOp] = {}
        self.read_besides: set[str] = set()
        self.placements: dict[Value, Placement | Whole] = {}
        self._sources: dict[Value, Value] = {}
        # What other updates' gradients are made into, sums aside: it is there in shards only.
        self._of_others: set[Value] = set()

    def source(self, value: Value) -> Value:
        """The value that `value` is another name of."""
        return self._sources.get(value, value)

    def is_gradient(self, value: Value) -> bool:
        """Whether a value is a reduced gradient of this update; those of others are outside."""
        return value in self._names and self._names[value][0] in self._keys

    def place(self) -> Refusal | None:
        """Computes all placements and the body; the reason why that is impossible, or None."""
        refusal = self._against_sizes()
        if refusal is not None:
            return refusal
        ancestors = self._ancestors()
        self._within = {op.name for op in ancestors}
        for op in sorted(ancestors, key=lambda o: o.position):
            refusal = self._place_op(op)
            if refusal is not None:
                return refusal
        return None

    def size_at(self, op: Op) -> int:
        """Elements of whatever lies in shards that an op of the body combines."""
        return self.size

    def _against_sizes(self) -> Refusal | None:
        """Why variables of these sizes cannot be updated together, or None."""
        if len(self.sizes) == 1:
            return None
        return refusals.Rules.DIFFERENT_SIZES.at(self._writes[0].name)

    def _elements_written(self, op: Op) -> int:
        """Elements of the variable that a write writes."""
        return math.prod(self._view.variables[op.inputs[0].op].shape or ())

    def computed_of_weights(self, name: str) -> frozenset[str]:
        """An op and those that it is computed with, if every replica may do them on whole weights.

        That is where they take no gradient and nothing of the update but weights, which are whole
        for the layers that read them.

        Args:
            name: The name of an op, perhaps of none.

        Returns:
            Their names; none where they take other things.
        """
        op = self._view.ops.get(name)
        if op is None or op.type == READ or name in self._written_by:
            return frozenset()
        found = {name}
        for value in self._behind([op]):
            handle = value.op
            if not self._enters(value):
                producer = self._view.producer(value)
                if producer.type == READ:
                    handle = producer.inputs[0].op
                else:
                    found.add(producer.name)
            own = handle in self._own_handles
            if value in self._names or (own and not self._view.variables[handle].trainable):
                return frozenset()
        return frozenset(found)

    def _ancestors(self) -> list[Op]:
        """The writes and what they depend on, up to what is outside."""
        found = {op.name: op for op in (*self._writes, *self._external_reductions)}
        for value in self._behind(tuple(found.values())):
            if not self._enters(value):
                producer = self._view.producer(value)
                found[producer.name] = producer
        return list(found.values())

    def _enters(self, value: Value) -> bool:
        """Whether a value enters the slice: a gradient, a handle, or what is computed outside."""
        known = value in self._names or value.op in self._view.variables
        return known or value.op in self._outside

    def _behind(self, ops: Iterable[Op]) -> Iterator[Value]:
        """What ops take, and what that is made of, up to what variables hold and what enters."""

        def made_of(value: Value) -> Sequence[Value]:
            if self._enters(value):
                return ()
            producer = self._view.producer(value)
            return () if producer.type == READ else producer.operands_of(value.index)

        return reachable((v for op in ops if op.type != READ for v in op.inputs), made_of)

    def _place_op(self, op: Op) -> Refusal | None:
        if op.type == READ:
            self._place_read(op)
            return None
        if op.name in self._written_by:
            self.body.append(op)
            return self._check_write(op)
        if op.type in self._renaming:
            self._pass_on(op)
            return None
        return self._place_computed(op)

    def _place_read(self, op: Op) -> None:
        """Places what a variable holds: one of the update's lies in shards."""
        ref = self._view.variables.get(op.inputs[0].op)
        if op.inputs[0].op in self._own_handles:
            assert ref is not None, "the update's own are known"
            self.placements[Value(op.name)] = self._placement_of(ref)
            self.body.append(op)
        elif ref is not None:
            self.read_besides.add(ref.key)

    def _placement_of(self, ref: VariableRef) -> Placement | Whole:
        """Where a variable of the update lies."""
        return Sharded(ref.shape or ())

    def _pass_on(self, op: Op) -> None:
        """Places what an op passes on: each operand as it is, under another name."""
        for i, value in enumerate(op.inputs):
            passed, operand = Value(op.name, i), self._placement(value)
            if operand is not None and not isinstance(operand, Replicated):
                self.placements[passed] = operand
                self._sources[passed] = self.source(value)
            if self._is_of_others(value):
                self._of_others.add(passed)

    def _place_computed(self, op: Op) -> Refusal | None:
        """Places what an op computes, and takes the op into the body if that is in shards."""
        found = [self._placement(v) for v in op.inputs]
        operands = [operand for operand in found if not isinstance(operand, Whole)]
        if len(operands) < len(found):
            return registry.no_rule(op.type, op.name)
        known = []
        for value, operand in zip(op.inputs, operands, strict=True):
            if operand is None:
                unknown = refusals.Updates.OPERAND_SHAPE_UNKNOWN.at(value.op)
                return unknown if any(isinstance(o, Sharded) for o in operands) else None
            known.append(operand)
        of_others = any(self._is_of_others(value) for value in op.inputs)
        if not any(isinstance(o, Sharded) for o in known) and not self._spreads(op, known):
            if of_others and family_of(op.type) is not Family.SUM:
                self._of_others.update(self._view.results(op.name))
            return None
        if of_others:
            return refusals.Updates.KEPT_APART.at(op.name)
        return self._place_result(op, tuple(known))

    def _is_of_others(self, value: Value) -> bool:
        """Whether a value is another update's gradient, or made of one element by element."""
        return value in self._of_others or self._names.is_apart(value, self._keys)

    def _place_result(self, op: Op, operands: tuple[Placement, ...]) -> Refusal | None:
        result, operation = Value(op.name), operation_of(self._view, op)
        outcome = registry.propagate(operation, operands)
        if isinstance(outcome, Refusal):
            return outcome
        (placed,) = outcome
        added_up = isinstance(placed, Partial)
        self.placements[result] = Replicated(placed.shape) if added_up else placed
        if family_of(op.type) is Family.RELABEL:
            self._sources[result] = self.source(op.inputs[0])
        else:
            self._add_to_body(op, operation, operands, placed)
        return None

    def _add_to_body(
        self, op: Op, operation: Operation, operands: registry.Operands, placed: Placement
    ) -> None:
        """Adds an op to the body whose first result lies so."""
        if isinstance(placed, Partial):
            self.sums[op.name] = placed
        local = registry.localize(operation, operands)
        if local is not None:
            self.locals[op.name] = local
        self.body.append(op)

    def _spreads(self, op: Op, operands: Sequence[Placement]) -> bool:
        """Whether an op makes a tensor of the update's size, for the update alone, of smaller ones.

        Each replica then makes its shard of it only, of the rows and columns that all replicas hold
        (Adafactor's second moments).
        """
        if family_of(op.type) is not Family.ELEMENTWISE or self.size == 1 or not operands:
            return False
        if math.prod(self._view.shape(Value(op.name)) or ()) != self.size:
            return False
        if any(math.prod(operand.shape) == self.size for operand in operands):
            return False
        return self._is_of_the_update(op)

    def _is_of_the_update(self, op: Op) -> bool:
        """Whether the update's writes and ops on single elements are all that read an op."""
        return all(
            consumer.name in self._within
            and (
                consumer.name in self._written_by or family_of(consumer.type) is Family.ELEMENTWISE
            )
            for consumer, _ in self._view.consumers(Value(op.name))
        )

    def _placement(self, value: Value) -> Placement | Whole | None:
        """Where an operand lies; None where its shape is not known."""
        if self.is_gradient(value):
            return Sharded(self._view.shape(value) or ())
        if value not in self.placements:
            shape = self._view.shape(value)
            if shape is None:
                return None
            self.placements[value] = Replicated(shape)
        return self.placements[value]

    def _check_write(self, op: Op) -> Refusal | None:
        """Whether a write's operands are what its shard needs."""
        write = WRITES[op.type]
        if write.rows is not None:
            return refusals.Updates.WRITES_SOME_ROWS.at(op.name, op_type=op.type)
        for value in op.inputs[: write.num_handles]:
            if value.op not in self._own_handles:
                return refusals.Updates.ALSO_WRITES.at(op.name, op_type=op.type)
        for slot, value in enumerate(op.inputs[write.num_handles :], write.num_handles):
            operand = self._placement(value)
            if operand is None:
                return refusals.Updates.OPERAND_SHAPE_UNKNOWN.at(value.op)
            if isinstance(operand, Whole):
                return refusals.Matrices.WRITES_OTHER_SIZE.at(op.name)
            wants_scalar = slot != write.operand
            if wants_scalar and not isinstance(operand, Replicated):
                return refusals.Updates.NO_SCALAR.at(op.name, slot=slot, op_type=op.type)
            if not wants_scalar and math.prod(operand.shape) != self._elements_written(op):
                return refusals.Updates.WRITES_OTHER_SHAPE.at(op.name, shape=operand.shape)
            if self._names.is_apart(value, self._keys):
                return refusals.Updates.KEPT_APART.at(op.name)
        return None
