"""Proof that an update is the same on every replica of one program that all of them run.

A TPU cluster holds the update once. What it computes is equal on all replicas if everything that
enters it is: constants, arguments that all replicas share, mirrored variables, sums over all
replicas. What a replica has of its own (its input, its number, its random numbers, a variable it
writes alone) must not enter; sharding would then change the result, so it is refused.
"""

from __future__ import annotations

from tf_wu_shard import refusals
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.tpu.ops import ON_HOST, OWN, REDUCTIONS, REPLICATED_INPUT
from tf_wu_shard.reachable import reachable
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.step.replica_matching import ReplicaMatcher


class SingleProgram(ReplicaMatcher):
    """Stands where replicas' copies are matched, and follows the one copy there is."""

    def __init__(
        self, view: GraphView, results: dict[Value, tuple[int, int]], num_replicas: int
    ) -> None:
        """Prepares to follow.

        Args:
            view: The graph.
            results: For each result of a gradient reduction, under all its names,
                `(reduction key, 0)`.
            num_replicas: How many replicas run the program.
        """
        super().__init__(view, results)
        self._num_replicas = num_replicas
        self._equal: set[str] = set()

    def match(self, replica: int, first: str, other: str) -> Refusal | None:
        """Follows a write back to all that enters it.

        Args:
            replica: 0.
            first: The write's name.
            other: The same.

        Returns:
            None when it is the same on every replica, else the first thing that is not.
        """
        assert replica == 0 and first == other, "one program has nothing to be matched with"

        def entering(name: str) -> list[str]:
            found = self._entering(self._view.ops[name])
            return [source for source in found if source not in self._equal]

        # Equal only once all that enters them has been followed without a refusal.
        followed = set[str]()
        for name in reachable({first} - self._equal, entering):
            refusal = self._differs(self._view.ops[name])
            if refusal is not None:
                return refusal
            followed.add(name)
        self._equal |= followed
        return None

    def differing(self) -> frozenset[str]:
        """Names of the ops whose results may differ between replicas; all found in one walk."""
        found: set[str] = set()
        for op in self._view:
            if self._differs(op) is not None or not found.isdisjoint(self._entering(op)):
                found.add(op.name)
        return frozenset(found)

    def _entering(self, op: Op) -> list[str]:
        """The ops on whose results it depends whether an op's are equal on all replicas."""
        if op.name in self._view.variables or op.type == READ or self._is_sum_of_all(op):
            return [v.op for v in op.inputs[:1] if op.type == READ]
        sources = (self.source(v) for v in op.inputs if v not in self._results)
        return [v.op for v in sources if v not in self._results]

    def source(self, value: Value) -> Value:
        """The value that an IdentityN hands through; a gradient of one's own puts one there.

        Beside a sum over all replicas it also hands through what a replica has of its own.
        """
        return self._view.unbundled(value, self._results)

    def _differs(self, op: Op) -> Refusal | None:
        """Why an op's result is not the same on every replica, its operands being so."""
        ref = self._view.variables.get(op.name)
        if ref is not None:
            if not ref.mirrored:
                return refusals.Replicas.OWN_VALUE.at(op.name, variable=ref.name or ref.key)
            return None
        if op.name in self._view.own_inputs:
            return refusals.Replicas.OWN_ARGUMENT.at(op.name)
        if op.type == REPLICATED_INPUT:
            if len(set(op.inputs)) > 1:
                return refusals.Replicas.INPUT_OF_EACH_REPLICA.at(op.name)
            return None
        if op.type in OWN:
            return refusals.Replicas.OWN_RESULT.at(op.name, op_type=op.type)
        if op.type in REDUCTIONS:
            if not self._is_sum_of_all(op):
                return refusals.Topology.SUM_OF_SOME.at(op.name)
            return None
        if ON_HOST in op.node.attr:
            return refusals.Replicas.OUTSIDE_COMPILATION.at(op.name)
        if op.type in ("Placeholder", "Arg", "_Arg", "NoOp"):
            return None
        if self._view.is_stateful(op.type) and not self._repeatable(op):
            return refusals.Replicas.OWN_RUN.at(op.name, op_type=op.type)
        return None

    def _is_sum_of_all(self, op: Op) -> bool:
        if op.type not in REDUCTIONS:
            return False
        tensor = self._view.constant(op.inputs[1])
        dims = tensor.tensor_shape.dim if tensor is not None else ()
        return [d.size for d in dims] == [1, self._num_replicas]
