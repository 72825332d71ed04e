"""A step's HLO becomes a module that a PJRT compiler takes, with its collectives and its memory."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf  # noqa: F401  sets the package up
from jax._src.interpreters import mlir
from jax._src.lib.mlir import ir

from tests.tpu_compiler.programs import Program, sharded_descent
from tf_wu_shard.tpu_compiler.hlo import hlo_of
from tf_wu_shard.tpu_compiler.stablehlo import collectives_of, shared_memory_of, stablehlo_of

# These run ops, and devices cannot be divided once TensorFlow has used one.
pytestmark = pytest.mark.usefixtures("logical_cpus")

CALLS = """
func.func private @sum(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "stablehlo.all_reduce"(%a) ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = stablehlo.add %x, %y : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func private @nobodys(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = func.call @sum(%a) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "stablehlo.collective_permute"(%0)
    {source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>}
    : (tensor<4xf32>) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}
func.func @main(%a: tensor<4xf32>, %taken: tensor<i1>) -> tensor<4xf32> {
  %0 = func.call @sum(%a) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = func.call @sum(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "stablehlo.if"(%taken) ({
    %3 = "stablehlo.collective_permute"(%1)
      {source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>}
      : (tensor<4xf32>) -> tensor<4xf32>
    stablehlo.return %3 : tensor<4xf32>
  }, {
    stablehlo.return %1 : tensor<4xf32>
  }) : (tensor<i1>) -> tensor<4xf32>
  return %2 : tensor<4xf32>
}
"""


def parsed(text: str) -> Any:
    with mlir.make_ir_context():
        return ir.Module.parse(text)


def test_no_op_or_attribute_is_left_that_a_parser_of_stablehlo_rejects() -> None:
    module = stablehlo_of(hlo_of(sharded_descent(32, 4, [[[0, 1]]], 2)))
    text = str(module)
    assert "mhlo." not in text and "stablehlo.subtract" in text
    assert str(parsed(text)) == text


def test_what_a_step_asks_for_is_counted_by_kind() -> None:
    module = stablehlo_of(hlo_of(sharded_descent(32, 4, [[[0, 1], [2, 3]], [[0, 2], [1, 3]]], 4)))
    assert collectives_of(module) == {"reduce-scatter": 2, "all-gather": 2}


def test_a_called_function_counts_once_however_deep_and_one_that_nobody_calls_does_not() -> None:
    assert collectives_of(parsed(CALLS)) == {"all-reduce": 1, "collective-permute": 1}


def test_each_written_variable_gives_its_memory_to_the_result_that_it_becomes() -> None:
    program = Program()
    gradient = program.tensor("gradient", (8,))
    kept, first, second = (program.variable(name, (8,)) for name in ("kept", "first", "second"))
    program.subtract_from(second, gradient)
    program.subtract_from(first, gradient)
    body = program.body(program.read(kept), num_replicas=2)
    # The arguments are the gradient and the variables, the results what is read and then those.
    assert [argument.name for argument in body.arguments] == ["gradient", "kept", "first", "second"]
    assert shared_memory_of(stablehlo_of(hlo_of(body))) == [(2, 1), (3, 2)]


def test_the_only_result_of_a_step_takes_the_memory_of_the_only_variable() -> None:
    module = stablehlo_of(hlo_of(sharded_descent(32, 4, [[[0, 1]]], 2)))
    assert shared_memory_of(module) == [(1, 0)]
    assert shared_memory_of(parsed(CALLS)) == []
