"""Claims about tpu_compiler/optimized.py: lines of optimized HLO, taken apart."""

from __future__ import annotations

from tf_wu_shard.tpu_compiler.optimized import Array, Instruction, read_instructions

TEXT = """HloModule step, is_scheduled=true, input_output_alias={ {1}: (0, {}, may-alias) }

%fused (param_0: f32[8,128], param_1: bf16[8]) -> f32[8,128] {
  %param_0 = f32[8,128]{1,0:T(8,128)S(1)} parameter(0)
  ROOT %add.1 = f32[8,128]{1,0:T(8,128)} add(%param_0, %param_0), metadata={op_name="a/b"}
}

ENTRY %main.5 (Arg_0: f32[8,128]) -> (f32[8,128], pred[]) {
  %Arg_0 = f32[8,128]{1,0:T(8,128)} parameter(0), metadata={op_name="XLA_Args"}
  %copy-start.2 = (f32[8,128]{1,0:T(8,128)S(1)}, f32[8,128]{1,0:T(8,128)}, u32[]{:S(2)}) \
copy-start(%Arg_0), backend_config={"flag_configs":[]}
  %copy-done.2 = f32[8,128]{1,0:T(8,128)S(1)} copy-done(%copy-start.2)
  %fusion.7 = f32[8,128]{1,0:T(8,128)} fusion(%copy-done.2, /*index=1*/%Arg_0), kind=kLoop, \
calls=%fused, metadata={op_name="adam/mul (x)" source_line=1}, \
backend_config={"window_config":{"estimated_cycles":"1830"}}
  ROOT %tuple = (f32[8,128]{1,0:T(8,128)}, pred[]{:T(512)}) tuple(%fusion.7, %p)
}
"""


def instruction(name: str) -> Instruction:
    (found,) = (i for i in read_instructions(TEXT) if i.name == name)
    return found


def test_every_line_of_a_computation_is_an_instruction() -> None:
    names = [(i.computation, i.name) for i in read_instructions(TEXT)]
    assert names == [
        ("fused", "param_0"),
        ("fused", "add.1"),
        *(("main.5", name) for name in ("Arg_0", "copy-start.2", "copy-done.2", "fusion.7")),
        ("main.5", "tuple"),
    ]


def test_a_fusion_has_cycles_a_name_and_the_computation_that_it_runs() -> None:
    fusion = instruction("fusion.7")
    assert (fusion.opcode, fusion.cycles, fusion.op_name) == ("fusion", 1830, "adam/mul (x)")
    assert fusion.calls == ("fused",)
    assert fusion.operands == ("copy-done.2", "Arg_0")


def test_arrays_of_a_tuple_are_told_apart_by_size_and_memory() -> None:
    arrays = instruction("copy-start.2").arrays
    assert arrays == (Array(8 * 128 * 4, 1), Array(8 * 128 * 4, 0), Array(4, 2))
    assert instruction("tuple").arrays == (Array(8 * 128 * 4, 0), Array(1, 0))


def test_an_instruction_without_an_estimate_or_a_name_says_so() -> None:
    done = instruction("copy-done.2")
    assert (done.cycles, done.op_name, done.calls) == (None, "", ())


def test_element_sizes_below_a_byte_are_rounded_up() -> None:
    text = "ENTRY %m (a: s4[3]) -> s4[3] {\n  %a = s4[3]{0} parameter(0)\n}\n"
    (only,) = read_instructions(text)
    assert only.arrays == (Array(2, 0),)
