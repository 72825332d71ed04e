"""What the compiled step costs: memory, collectives, time; read from what the compiler wrote.

Times are the compiler's own estimates, in cycles, of the instructions that it gives one for. It
gives none for collectives, whose time is in no figure here, and none for plain copies, whose bytes
are counted. A copy counts when the compiler gave it no cycles, it stands for itself (inside a
fusion the fusion's cycles hold it; inside an asynchronous wrapper it counts), and it reads and
writes HBM. Transfers between HBM and the chip's own memory, with which the compiler feeds and
empties fusions ahead of time, are counted apart: what computes has to bring its operands in.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from tf_wu_shard.tpu_compiler.chips import Chip
from tf_wu_shard.tpu_compiler.optimized import Instruction, read_instructions
from tf_wu_shard.tpu_compiler.scopes import Scope, scope_at
from tf_wu_shard.tpu_compiler.survivors import survivors

_COPIES = ("copy", "copy-start")
_HBM = 0


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes of one device's HBM.

    Attributes:
        argument_bytes: What the step is given: weights, slots, a batch.
        output_bytes: What it leaves.
        alias_bytes: The part of the outputs that takes the place of arguments.
        temp_bytes: What it needs in between.
    """

    argument_bytes: int
    output_bytes: int
    alias_bytes: int
    temp_bytes: int

    @property
    def in_use(self) -> int:
        """What the step needs in all."""
        return self.argument_bytes + self.output_bytes - self.alias_bytes + self.temp_bytes


@dataclasses.dataclass(frozen=True)
class Figures:
    """One compiled step.

    Attributes:
        memory: Of one device.
        cycles: Estimated, of all instructions with an estimate; no collective has one.
        scope_cycles: The same by part of the step.
        uncosted_copy_bytes: Of copies from HBM to HBM that have no estimate.
        transfer_bytes: Of copies between HBM and the chip's own memory that have none.
        collectives: How many of each kind there are. One in a loop counts once.
        collective_bytes: Bytes of their operands or results, whichever is larger, by kind.
        milliseconds: The cycles by the chip's clock; None where the clock is not known.
        pessimistic_milliseconds: These, and the uncosted copies one after the other, each byte
            read and written.
    """

    memory: Memory
    cycles: int
    scope_cycles: dict[str, int]
    uncosted_copy_bytes: int
    transfer_bytes: int
    collectives: dict[str, int]
    collective_bytes: dict[str, int]
    milliseconds: float | None
    pessimistic_milliseconds: float | None

    def to_json(self) -> dict[str, Any]:
        """All figures, flat, as JSON knows them."""
        fields = dataclasses.asdict(self)
        return fields.pop("memory") | {"memory_in_use_bytes": self.memory.in_use} | fields


def figures_of(text: str, memory: Memory, chip: Chip, scopes: Mapping[str, Scope]) -> Figures:
    """Reads an optimized module.

    Args:
        text: The module, as XLA prints it.
        memory: What the compiler says of it.
        chip: What it was compiled for.
        scopes: The part of the step of each node of the traced graph.
    """
    instructions = list(read_instructions(text))
    by_scope = {scope.value: 0 for scope in Scope}
    for instruction in instructions:
        by_scope[scope_at(instruction.op_name, scopes).value] += instruction.cycles or 0
    cycles = sum(by_scope.values())
    copied, transferred = _copied_bytes(instructions)
    kinds: collections.Counter[str] = collections.Counter()
    sizes: collections.Counter[str] = collections.Counter()
    for survivor in survivors(instructions):
        kinds[survivor.kind] += 1
        sizes[survivor.kind] += survivor.bytes
    milliseconds = chip.cycles_per_second and cycles / chip.cycles_per_second * 1e3
    copying = 2 * copied / chip.hbm_bytes_per_second * 1e3
    return Figures(
        memory,
        cycles,
        by_scope,
        copied,
        transferred,
        dict(kinds),
        dict(sizes),
        milliseconds,
        None if milliseconds is None else milliseconds + copying,
    )


def _copied_bytes(instructions: Iterable[Instruction]) -> tuple[int, int]:
    """Bytes of copies without an estimate: within HBM, and between HBM and the chip."""
    instructions = list(instructions)
    named = {instruction.name: instruction for instruction in instructions}
    fused = {name for i in instructions if i.opcode == "fusion" for name in i.calls}
    within = between = 0
    for instruction in instructions:
        if instruction.opcode not in _COPIES or instruction.computation in fused:
            continue
        if instruction.cycles is not None or not instruction.arrays:
            continue
        target = instruction.arrays[0]
        source = named[instruction.operands[0]].arrays if instruction.operands else ()
        spaces = {target.space, source[0].space if source else _HBM}
        if spaces == {_HBM}:
            within += target.bytes
        elif _HBM in spaces:
            between += target.bytes
    return within, between
