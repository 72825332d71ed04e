"""What a ground or a pass of your own is written with, in one place."""

# First, as loading TensorFlow is what sets the package up, with the modules below.
import tensorflow  # noqa: F401

from tf_wu_shard.dtypes import BFLOAT16, FLOAT32
from tf_wu_shard.graph.builder import Emitter
from tf_wu_shard.graph.op import Value
from tf_wu_shard.grounds.dialect import Dialect
from tf_wu_shard.grounds.in_process.replica_copies import CopyOfEachReplica
from tf_wu_shard.layout import Layout
from tf_wu_shard.passes import Pass
from tf_wu_shard.placement import Combine
from tf_wu_shard.preferences import Preferences
from tf_wu_shard.replicas import Replicas
from tf_wu_shard.step.edit import StepEdit
from tf_wu_shard.step.reductions import GradientReduction
from tf_wu_shard.step.step import Step
from tf_wu_shard.storage.own_variables import OwnVariables, beside

__all__ = [
    "BFLOAT16",
    "FLOAT32",
    "Combine",
    "CopyOfEachReplica",
    "Dialect",
    "Emitter",
    "GradientReduction",
    "Layout",
    "OwnVariables",
    "Pass",
    "Preferences",
    "Replicas",
    "Step",
    "StepEdit",
    "Value",
    "beside",
]
