"""An op that a CPU can run is told from one that needs a TPU."""

from __future__ import annotations

import pytest
import tensorflow as tf  # noqa: F401

from tf_wu_shard.tensorflow_private.kernels import has_cpu_kernel


@pytest.mark.parametrize("op_type", ["MatMul", "AssignVariableOp", "CollectiveReduceV2"])
def test_what_a_cpu_runs_has_a_kernel(op_type: str) -> None:
    assert has_cpu_kernel(op_type)


@pytest.mark.parametrize("op_type", ["TPUExecute", "CrossReplicaSum", "NoSuchOp"])
def test_what_only_a_tpu_runs_or_nobody_knows_has_none(op_type: str) -> None:
    assert not has_cpu_kernel(op_type)
