"""The collectives of an optimized program: what the compiler left of those asked for, and made."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tf_wu_shard.tpu_compiler.optimized import Instruction

_COLLECTIVES = (
    *("all-reduce", "all-gather", "reduce-scatter", "all-to-all"),
    *("collective-permute", "collective-broadcast"),
)


@dataclasses.dataclass(frozen=True)
class Survivor:
    """One collective.

    Attributes:
        kind: Such as "all-reduce".
        bytes: Of its operands or its results, whichever are larger.
        largest: Bytes of the largest of these: several tensors may have been combined.
        op_name: The traced op that it came from, "" where that is not known.
    """

    kind: str
    bytes: int
    largest: int
    op_name: str


def survivors(instructions: Sequence[Instruction]) -> list[Survivor]:
    """Finds the collectives among a module's instructions.

    Args:
        instructions: All of them.

    Returns:
        Each collective once, in the order of the text.
    """
    named = {instruction.name: instruction for instruction in instructions}
    sliced = {
        operand for i in instructions if i.opcode == "dynamic-slice" for operand in i.operands[:1]
    }
    fused = {name for i in instructions if i.opcode == "fusion" for name in i.calls}
    chains: set[tuple[str, str, str]] = set()
    found = []
    for instruction in instructions:
        kind = instruction.opcode.removesuffix("-start")
        if kind not in _COLLECTIVES:
            continue
        # A reduction over an axis of the torus comes out as a fusion that reduces and keeps the
        # own part, as one program on the chip: it sends what a reduce-scatter sends.
        inside = instruction.computation in fused
        if kind == "all-reduce" and inside and instruction.name in sliced:
            kind = "reduce-scatter"
        # One that goes on while others compute has a piece in each of their fusions.
        piece = (kind, instruction.op_name, instruction.chain)
        if instruction.chain and piece in chains:
            continue
        chains.add(piece)
        read = [a.bytes for o in instruction.operands if o in named for a in named[o].arrays]
        given = [array.bytes for array in instruction.arrays]
        found.append(
            Survivor(kind, max(sum(read), sum(given)), max(0, *read, *given), instruction.op_name)
        )
    return found
