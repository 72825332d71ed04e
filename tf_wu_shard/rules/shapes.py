"""Ops that give a tensor another name or another shape of the same elements.

A cut is defined on the row-major elements, which these ops keep, so nothing is emitted.
`IdentityN` passes each of its operands on by number: output k is operand k. `BroadcastTo` is one of
them where it adds leading ones only.

What is to be proved of each: its result has the elements of its operand, in their row-major order.
"""

from __future__ import annotations

from tf_wu_shard.rules import registry

registry.register(
    registry.Family.RELABEL,
    registry.relabelled,
    *("Identity", "IdentityN", "StopGradient", "PreventGradient", "Snapshot"),
    *("Reshape", "ExpandDims", "Squeeze", "EnsureShape", "BroadcastTo"),
)


def source_operands(op_type: str, output: int, num_operands: int) -> range:
    """Which operands of a relabelling op its output number `output` is made of."""
    if op_type == "IdentityN":
        return range(output, output + 1)
    return range(num_operands)
