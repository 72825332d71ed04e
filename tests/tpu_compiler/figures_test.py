"""Claims about tpu_compiler/figures.py: what is counted, and what is not."""

from __future__ import annotations

import pytest

from tf_wu_shard.tpu_compiler.chips import Chip
from tf_wu_shard.tpu_compiler.figures import Figures, Memory, figures_of
from tf_wu_shard.tpu_compiler.scopes import Scope

MEMORY = Memory(argument_bytes=700, output_bytes=600, alias_bytes=500, temp_bytes=30)
CHIP = Chip(cycles_per_second=1e9, hbm_bytes=2**30, hbm_bytes_per_second=1e9)

HBM = "f32[16,128]{1,0:T(8,128)}"
CHIP_MEMORY = "f32[16,128]{1,0:T(8,128)S(1)}"
BYTES = 16 * 128 * 4


def read(*lines: str, before: str = "", scopes: dict[str, Scope] | None = None) -> Figures:
    entry = "".join(f"  {line}\n" for line in (f"%a = {HBM} parameter(0)", *lines))
    text = f"HloModule m\n\n{before}ENTRY %main (a: f32[16,128]) -> f32[16,128] {{\n{entry}}}\n"
    return figures_of(text, MEMORY, CHIP, scopes or {})


def costed(name: str, op_name: str, cycles: int) -> str:
    return (
        f'%{name} = {HBM} fusion(%a), kind=kLoop, calls=%f, metadata={{op_name="{op_name}"}},'
        f' backend_config={{"estimated_cycles":"{cycles}"}}'
    )


def test_memory_in_use_counts_what_shares_memory_once() -> None:
    assert MEMORY.in_use == 700 + 600 - 500 + 30


def test_cycles_are_divided_by_the_part_of_the_step() -> None:
    scopes = {"dense/MatMul": Scope.GRADIENTS, "adam": Scope.UPDATE}
    found = read(
        costed("x", "dense/MatMul", 5),
        costed("y", "adam/sub", 7),
        costed("z", "", 11),
        scopes=scopes,
    )
    assert found.scope_cycles == {
        "forward and backward": 5,
        "update": 7,
        "collectives' glue": 0,
        "other": 11,
    }
    assert found.cycles == 23
    assert found.milliseconds == pytest.approx(23e-6)


def test_a_copy_within_hbm_costs_each_byte_twice_on_top_of_the_cycles() -> None:
    found = read(costed("x", "", 1000), f"%c = {HBM} copy(%a)")
    assert found.uncosted_copy_bytes == BYTES
    assert found.milliseconds == pytest.approx(1e-3)
    assert found.pessimistic_milliseconds == pytest.approx(1e-3 + 2 * BYTES / 1e9 * 1e3)


def test_an_asynchronous_copy_counts_once_and_at_its_start() -> None:
    found = read(f"%s = ({HBM}, {HBM}, u32[]{{:S(2)}}) copy-start(%a)", f"%d = {HBM} copy-done(%s)")
    assert found.uncosted_copy_bytes == BYTES


def test_a_copy_in_an_asynchronous_wrapper_counts() -> None:
    wrapper = f"%wrapped (p: f32[16,128]) -> f32[16,128] {{\n  %p = {HBM} parameter(0)\n"
    wrapper += f"  ROOT %c = {HBM} copy(%p)\n}}\n\n"
    found = read(f"%s = (({HBM}), {HBM}, u32[]) async-start(%a), calls=%wrapped", before=wrapper)
    assert found.uncosted_copy_bytes == BYTES


def test_a_copy_inside_a_fusion_is_the_fusions() -> None:
    fused = f"%f (p: f32[16,128]) -> f32[16,128] {{\n  %p = {HBM} parameter(0)\n"
    fused += f"  ROOT %c = {HBM} copy(%p)\n}}\n\n"
    assert read(costed("x", "", 5), before=fused).uncosted_copy_bytes == 0


def test_a_copy_with_an_estimate_is_in_the_cycles() -> None:
    found = read(f'%c = {HBM} copy(%a), backend_config={{"estimated_cycles":"9"}}')
    assert (found.cycles, found.uncosted_copy_bytes) == (9, 0)


def test_bringing_an_operand_onto_the_chip_is_counted_apart() -> None:
    found = read(f"%s = ({CHIP_MEMORY}, {HBM}, u32[]{{:S(2)}}) copy-start(%a)")
    assert (found.uncosted_copy_bytes, found.transfer_bytes) == (0, BYTES)


def test_collectives_are_counted_by_kind_with_the_bytes_of_the_larger_side() -> None:
    found = read(
        "%r = f32[4,128]{1,0} reduce-scatter(%a), dimensions={0}, to_apply=%add",
        "%g = f32[16,128]{1,0} all-gather(%r), dimensions={0}",
        f"%s = ({HBM}, {HBM}) all-reduce-start(%a, %g), to_apply=%add",
        f"%d = ({HBM}, {HBM}) all-reduce-done(%s)",
    )
    assert found.collectives == {"reduce-scatter": 1, "all-gather": 1, "all-reduce": 1}
    assert found.collective_bytes == {
        "reduce-scatter": BYTES,
        "all-gather": BYTES,
        "all-reduce": 2 * BYTES,
    }


def test_a_fused_sum_that_keeps_its_own_part_is_a_reduce_scatter() -> None:
    fused = f"%f (p: f32[16,128]) -> f32[4,128] {{\n  %p = {HBM} parameter(0)\n"
    fused += f"  %r = {HBM} all-reduce(%p), to_apply=%add\n"
    fused += "  ROOT %s = f32[4,128]{1,0} dynamic-slice(%r, %i, %z)\n}\n\n"
    found = read("%x = f32[4,128]{1,0} fusion(%a), kind=kCustom, calls=%f", before=fused)
    assert found.collectives == {"reduce-scatter": 1}


def test_a_sum_that_is_sliced_afterwards_is_an_all_reduce() -> None:
    found = read(
        f"%r = {HBM} all-reduce(%a), to_apply=%add",
        "%s = f32[4,128]{1,0} dynamic-slice(%r, %i, %z)",
    )
    assert found.collectives == {"all-reduce": 1}


def test_without_a_known_clock_there_are_cycles_and_no_times() -> None:
    chip = Chip(None, 2**30, 1e9)
    found = figures_of("ENTRY %m (a: f32[1]) -> f32[1] {\n}\n", MEMORY, chip, {})
    assert (found.cycles, found.milliseconds, found.pessimistic_milliseconds) == (0, None, None)


def test_json_is_flat_and_has_the_memory_in_use() -> None:
    found = read().to_json()
    assert found["argument_bytes"] == 700 and found["memory_in_use_bytes"] == 830
    assert {"alias_bytes", "temp_bytes", "cycles", "milliseconds", "collectives"} <= set(found)


def test_the_pieces_of_one_asynchronous_collective_count_once() -> None:
    piece = 'all-gather(%a), frontend_attributes={chain_id="7"}, metadata={op_name="g"}'
    other = piece.replace('"7"', '"8"')
    found = read(f"%x = {HBM} {piece}", f"%y = {HBM} {piece}", f"%z = {HBM} {other}")
    assert found.collectives == {"all-gather": 2}
    assert found.collective_bytes == {"all-gather": 2 * BYTES}
