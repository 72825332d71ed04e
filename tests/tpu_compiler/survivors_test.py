"""Collectives are found in an optimized program whatever the compiler made of them."""

from __future__ import annotations

from tf_wu_shard.tpu_compiler.optimized import Array, Instruction
from tf_wu_shard.tpu_compiler.survivors import survivors


def instruction(
    name: str,
    opcode: str,
    size: int = 64,
    operands: tuple[str, ...] = (),
    calls: tuple[str, ...] = (),
    computation: str = "main",
    chain: str = "",
) -> Instruction:
    arrays = (Array(size, 0),)
    return Instruction(
        name, opcode, computation, arrays, operands, calls, None, f"op/{name}", chain
    )


def kinds(*instructions: Instruction) -> list[str]:
    return [survivor.kind for survivor in survivors(instructions)]


def test_each_collective_is_found_once_begun_or_not_and_nothing_else() -> None:
    assert kinds(
        instruction("a", "all-reduce"),
        instruction("b", "all-gather-start"),
        instruction("c", "all-gather-done", operands=("b",)),
        instruction("d", "add"),
    ) == ["all-reduce", "all-gather"]


def test_the_larger_of_operands_and_results_counts() -> None:
    small, other = instruction("x", "parameter", 16), instruction("y", "parameter", 48)
    (gathered,) = survivors([small, instruction("g", "all-gather", 64, ("x",)), other])
    (scattered,) = survivors(
        [small, other, instruction("s", "reduce-scatter", 16, ("x", "y", "outside"))]
    )
    assert (gathered.bytes, gathered.largest, gathered.op_name) == (64, 64, "op/g")
    assert (scattered.bytes, scattered.largest) == (64, 48)


def test_a_fusion_that_reduces_and_keeps_its_own_part_is_a_reduce_scatter() -> None:
    reduced = instruction("r", "all-reduce", computation="fused")
    part = instruction("p", "dynamic-slice", 16, ("r", "index"), computation="fused")
    fusion = instruction("f", "fusion", 16, calls=("fused",))
    assert kinds(reduced, part, fusion) == ["reduce-scatter"]
    # Outside of a fusion, all of it was sent.
    assert kinds(reduced, part) == ["all-reduce"]
    assert kinds(reduced, fusion) == ["all-reduce"]


def test_pieces_of_one_that_goes_on_while_others_compute_count_once() -> None:
    pieces = [
        Instruction(f"a{n}", "all-gather", f"f{n}", (Array(64, 0),), (), (), None, "op", "7")
        for n in range(3)
    ]
    assert kinds(*pieces) == ["all-gather"]
