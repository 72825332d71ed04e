"""Reading the optimized HLO that the TPU compiler wrote: one line an instruction.

Knows the text's form and nothing of what the program is for.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator

_ELEMENT_BITS = {
    **{"pred": 8, "s4": 4, "u4": 4, "s8": 8, "u8": 8, "s16": 16, "u16": 16, "bf16": 16, "f16": 16},
    **{"s32": 32, "u32": 32, "f32": 32, "s64": 64, "u64": 64, "f64": 64, "c64": 64, "c128": 128},
}

_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (.*?) ([a-z][\w\-]*)\((.*)$")
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{\s*$")
_ARRAY = re.compile(r"([a-z]+[0-9]*[a-z0-9]*)\[([0-9,]*)\](\{[^}]*\})?")
_OPERAND = re.compile(r"%([\w.\-]+)")
_CALLS = re.compile(r"(?:calls|to_apply|body|condition)=%?([\w.\-]+)")
_CYCLES = re.compile(r'"estimated_cycles":"([0-9]+)"')
_OP_NAME = re.compile(r'op_name="([^"]*)"')
_CHAIN = re.compile(r'chain_id="([^"]*)"')
_SPACE = re.compile(r"S\(([0-9]+)\)")


@dataclasses.dataclass(frozen=True)
class Array:
    """One array that an instruction yields.

    Attributes:
        bytes: Its size, padding not counted.
        space: The memory it lies in: 0 is HBM, every other is on the chip.
    """

    bytes: int
    space: int


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One line.

    Attributes:
        name: Unique in the module.
        opcode: Such as "fusion" or "all-reduce-start".
        computation: The name of the computation that it is in.
        arrays: What it yields.
        operands: Names of the instructions that it reads.
        calls: Names of the computations that it runs.
        cycles: The compiler's estimate, None where it gives none.
        op_name: Where it came from, "" where that is not known.
        chain: The asynchronous collective that it is a piece of, or "".
    """

    name: str
    opcode: str
    computation: str
    arrays: tuple[Array, ...]
    operands: tuple[str, ...]
    calls: tuple[str, ...]
    cycles: int | None
    op_name: str
    chain: str


def read_instructions(text: str) -> Iterator[Instruction]:
    """Reads a module.

    Args:
        text: The module, as XLA prints it.

    Yields:
        Its instructions, in the order of the text.
    """
    computation = ""
    for line in text.splitlines():
        if line[:1].isspace():
            found = _INSTRUCTION.match(line)
            if found is not None:
                yield _instruction(computation, *found.groups())
        else:
            header = _COMPUTATION.match(line)
            if header is not None:
                computation = header[2]


def _instruction(computation: str, name: str, result: str, opcode: str, rest: str) -> Instruction:
    operands, _, attributes = _split_operands(rest)
    cycles = _CYCLES.search(attributes)
    op_name = _OP_NAME.search(attributes)
    chain = _CHAIN.search(attributes)
    return Instruction(
        name,
        opcode,
        computation,
        tuple(_arrays(result)),
        tuple(_OPERAND.findall(operands)),
        tuple(_CALLS.findall(attributes)),
        None if cycles is None else int(cycles[1]),
        "" if op_name is None else op_name[1],
        "" if chain is None else chain[1],
    )


def _split_operands(rest: str) -> tuple[str, str, str]:
    """Cuts behind the parenthesis that closes the operands."""
    depth = 1
    for place, character in enumerate(rest):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return rest[:place], ")", rest[place + 1 :]
    return rest, "", ""


def _arrays(result: str) -> Iterator[Array]:
    for kind, sizes, layout in _ARRAY.findall(result):
        if kind in _ELEMENT_BITS:
            elements = math.prod(int(size) for size in sizes.split(",") if size)
            space = _SPACE.search(layout)
            yield Array(
                -(-elements * _ELEMENT_BITS[kind] // 8), 0 if space is None else int(space[1])
            )
