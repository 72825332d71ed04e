"""Ops that give a tensor another name or another shape of the same elements.

A flat cut is defined on the row-major elements, which these ops keep, so nothing is emitted.
`IdentityN` passes each of its operands on by number: output k is operand k.
"""

from __future__ import annotations

from tf_wu_shard.rules import registry

registry.register(
    registry.Family.RELABEL,
    registry.relabelled,
    *("Identity", "IdentityN", "StopGradient", "PreventGradient", "Snapshot"),
    *("Reshape", "ExpandDims", "Squeeze"),
)


def source_operands(op_type: str, output: int, num_operands: int) -> range:
    """Which operands of a relabelling op its output number `output` is made of."""
    if op_type == "IdentityN":
        return range(output, output + 1)
    return range(num_operands)
