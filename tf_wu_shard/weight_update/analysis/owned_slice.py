"""What an update computes that one replica does alone, on whole variables.

Nothing is cut, so an op needs no rule: whatever yields the same on every replica may be left to
one of them. The slice goes backward from the writes to gradients, other variables and what other
updates compute; what of that depends on this update's gradients and variables is its body.
"""

from __future__ import annotations

import math

from tf_wu_shard import refusals
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.step.accesses import writes_in_call
from tf_wu_shard.weight_update.analysis.update_slice import UpdateSlice


class OwnedSlice(UpdateSlice):
    """The backward slice from the writes on replica 0; all of `body` is to run on one replica.

    What depends on gradients of other updates besides, through single numbers only (the norm of
    all gradients), stays where it is: on every replica.
    """

    def place(self) -> Refusal | None:
        """See `UpdateSlice.place`; nothing is placed in shards."""
        self._own: set[Value | str] = set()
        self._foreign: set[Value | str] = set()
        for op in sorted(self._ancestors(), key=lambda o: o.position):
            refusal = self._place_op(op)
            if refusal is not None:
                return refusal
        return None

    def _place_op(self, op: Op) -> Refusal | None:
        if op.type == READ:
            if op.inputs[0].op in self._own_handles:
                self._take(op)
            return None
        if op.type == "IdentityN":
            # What it hands on beside each other need not belong together.
            for i, value in enumerate(op.inputs):
                if self._is_own(value):
                    self._own.add(Value(op.name, i))
                elif self._is_foreign(value):
                    self._foreign.add(Value(op.name, i))
            return None
        own = [value for value in op.inputs if self._is_own(value)]
        if own and writes_in_call(self._view, op):
            # The other replicas' components would miss it.
            return refusals.Matrices.CALL_WRITES.at(op.name, op_type=op.type)
        if op.name in self._written_by or any(self._is_tensor(value) for value in own):
            if any(self._names.is_apart(value, self._keys) for value in op.inputs):
                return refusals.Updates.KEPT_APART.at(op.name)
            self._take(op)
        elif any(self._is_foreign(value) for value in op.inputs):
            self._foreign.add(op.name)
        elif own:
            self._take(op)
        return None

    def _take(self, op: Op) -> None:
        self._own.add(op.name)
        self.body.append(op)

    def _is_own(self, value: Value) -> bool:
        if value in self._names:
            return self.is_gradient(value)
        return value in self._own or value.op in self._own

    def _is_foreign(self, value: Value) -> bool:
        if value in self._names:
            return not self.is_gradient(value)
        return value in self._foreign or value.op in self._foreign

    def _is_tensor(self, value: Value) -> bool:
        """Whether a value may have several elements."""
        shape = self._view.shape(value)
        return shape is None or math.prod(shape) > 1
