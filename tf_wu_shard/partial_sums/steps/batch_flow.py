"""What of a step follows from the batch of which replica, from their sums, and from gradients.

One walk over the ops, in their order. What a value follows from is a set of bits: one for each copy
of the replicas' program, whose batch it is; one for what several replicas gave together; one for
each weight, whose summed gradient it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.tpu.ops import REPLICATED_OUTPUT
from tf_wu_shard.reachable import reachable
from tf_wu_shard.step.reductions import GradientReduction

_SHAPES = frozenset({"Shape", "Size", "Rank"})

# They yield the elements that they are given.
_SAME_ELEMENTS = frozenset({"Reshape", "Identity", "EnsureShape", "Squeeze", "ExpandDims"})


def _values_behind(view: GraphView, sums: Sequence[GradientReduction]) -> frozenset[Value]:
    """Dense gradients on their way into sums, in whatever shape."""
    operands = [operand for one in sums if one.gathered is None for operand in one.operands]

    def before(value: Value) -> Sequence[Value]:
        op = view.producer(value)
        return op.inputs[:1] if op.type in _SAME_ELEMENTS else ()

    return frozenset(reachable(operands, before))


class BatchFlow:
    """The bits of all values and ops of a step.

    Attributes:
        copies: The bits of all copies' batches.
        joined: The bit of what several replicas gave together, gradients of weights aside.
        weights: For each weight, by key, the bit of its summed gradient.
        carriers: Names of the ops that carry sums over replicas.
    """

    def __init__(
        self,
        view: GraphView,
        batches: Sequence[Sequence[Value]],
        gradients: Mapping[str, Sequence[GradientReduction]],
        other_sums: Sequence[GradientReduction],
    ) -> None:
        """Walks over the ops.

        Args:
            view: The step.
            batches: Per copy of the replicas' program, the tensors of its batch.
            gradients: For each weight, by key, the sums of its gradients.
            other_sums: The other sums over replicas.
        """
        self.copies = (1 << len(batches)) - 1
        self.joined = 1 << len(batches)
        self.weights = {key: self.joined << 1 + i for i, key in enumerate(gradients)}
        self._view = view
        self._of_values: dict[Value, int] = {}
        self._of_ops: dict[str, int] = {}
        for copy, tensors in enumerate(batches):
            for tensor in tensors:
                self._add(tensor, 1 << copy)
        carried: dict[str, list[tuple[Value, int]]] = {}
        sums = [(one, self.weights[key]) for key, found in gradients.items() for one in found]
        sums += [(one, self.joined) for one in other_sums]
        for one, bit in sums:
            for carrier in one.carriers:
                carried.setdefault(carrier, [])
            for result in one.results:
                carried.setdefault(result.op, []).append((result, bit))
        self.carriers = frozenset(carried)
        self._gradients = _values_behind(
            view, [one for found in gradients.values() for one in found]
        )
        for op in view:
            self._follow(op, carried.get(op.name))

    def of(self, value: Value) -> int:
        """What a value follows from."""
        return self._of_values.get(value, 0)

    def of_op(self, op: Op) -> int:
        """What the operands of an op follow from; nothing where it carries a sum."""
        return self._of_ops.get(op.name, 0)

    def copy_of(self, bits: int) -> int | None:
        """The copy whose batch alone something follows from; None where there is none, or more."""
        own = bits & self.copies
        alone = own and own & (own - 1) == 0 and not bits & self.joined
        return own.bit_length() - 1 if alone else None

    def leaving(self) -> Iterator[tuple[Op, int, Value, int]]:
        """Where what a replica has of its own meets another's, or leaves a program of all.

        Yields:
            The op there, the operand's number, the value, and the copy that it is of.
        """
        for op in self._view:
            bits = self.of_op(op) & self.copies
            if bits & (bits - 1) or (bits and op.type == REPLICATED_OUTPUT):
                for slot, value in enumerate(op.inputs):
                    copy = self.copy_of(self.of(value))
                    if copy is not None:
                        yield op, slot, value, copy

    def _add(self, value: Value, bits: int) -> None:
        self._of_values[value] = self.of(value) | bits

    def _follow(self, op: Op, carried: Sequence[tuple[Value, int]] | None) -> None:
        if carried is not None:
            for value, bit in carried:
                self._add(value, bit)
            return
        bits = 0
        for value in op.inputs:
            bits |= self.of(value)
        # Whatever is in a batch, its gradient has its weight's shape.
        if not bits or (op.type in _SHAPES and op.inputs[0] in self._gradients):
            return
        own = bits & self.copies
        bits |= self.joined if own & (own - 1) else 0
        self._of_ops[op.name] = bits
        if op.type == REPLICATED_OUTPUT:
            return
        for value in self._view.results(op.name):
            self._add(value, self.of(op.inputs[value.index]) if op.passes_each_on else bits)
