"""Automatic cross-replica sharding of the weight update for TensorFlow.

Importing registers the pass and teaches `tf.config.optimizer.set_experimental_options` the flag
`weight_update_sharding`; both happen when TensorFlow is imported, if it is not yet. Nothing
changes until the flag is set.
"""

import importlib
from typing import TYPE_CHECKING, Any

from tf_wu_shard import deferred
from tf_wu_shard.config import ShardingOptions, install_flag
from tf_wu_shard.errors import (
    EmulationError,
    GraphDefError,
    NothingShardedError,
    OptionError,
    StorageError,
    TooLittleShardedError,
    UnsupportedTensorFlowError,
    WuShardError,
)
from tf_wu_shard.grounds.registry import register_dialect
from tf_wu_shard.partial_sums.options import PartialSums
from tf_wu_shard.passes import register_pass

if TYPE_CHECKING:
    from tf_wu_shard import emulation, extending, report
    from tf_wu_shard.estimation.estimate import estimate
    from tf_wu_shard.estimation.model_summary import summary
    from tf_wu_shard.graph_def import RewrittenGraphDef, VariableInShards, rewrite_graph_def
    from tf_wu_shard.partial_sums.deadline import deadline_dataset
    from tf_wu_shard.partial_sums.lateness import with_lateness
    from tf_wu_shard.partial_sums.rounds.registry import flush_partial_sums
    from tf_wu_shard.report.published import clear_reports, reports
    from tf_wu_shard.report.report import Report

__all__ = [
    "EmulationError",
    "GraphDefError",
    "NothingShardedError",
    "OptionError",
    "PartialSums",
    "Report",
    "RewrittenGraphDef",
    "ShardingOptions",
    "StorageError",
    "TooLittleShardedError",
    "UnsupportedTensorFlowError",
    "VariableInShards",
    "WuShardError",
    "clear_reports",
    "deadline_dataset",
    "emulation",
    "estimate",
    "extending",
    "flush_partial_sums",
    "register_dialect",
    "register_pass",
    "report",
    "reports",
    "rewrite_graph_def",
    "summary",
    "with_lateness",
]


def _register() -> None:
    # First, as what is imported next takes these names for granted.
    from tf_wu_shard.tensorflow_private import required_names

    required_names.check()
    from tf_wu_shard.graph_pass import register
    from tf_wu_shard.partial_sums import gradients, stand_ins

    install_flag()
    register()
    stand_ins.install()
    register_pass(gradients.PartialGradientSums())


def __getattr__(name: str) -> Any:
    # What needs TensorFlow loads it when it is first asked for.
    if name in ("clear_reports", "reports"):
        from tf_wu_shard.report import published

        return getattr(published, name)
    if name == "Report":
        from tf_wu_shard.report.report import Report

        return Report
    if name in ("RewrittenGraphDef", "VariableInShards", "rewrite_graph_def"):
        from tf_wu_shard import graph_def

        return getattr(graph_def, name)
    if name == "deadline_dataset":
        from tf_wu_shard.partial_sums import deadline

        return deadline.deadline_dataset
    if name == "flush_partial_sums":
        # First, as it has the passes imported, and they this module.
        importlib.import_module("tensorflow")
        from tf_wu_shard.partial_sums.rounds import registry

        return registry.flush_partial_sums
    if name == "with_lateness":
        from tf_wu_shard.partial_sums import lateness

        return lateness.with_lateness
    if name == "estimate":
        from tf_wu_shard.estimation.estimate import estimate

        return estimate
    if name == "summary":
        from tf_wu_shard.estimation.model_summary import summary

        return summary
    if name in ("emulation", "extending", "report"):
        return importlib.import_module(f"tf_wu_shard.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


deferred.when_imported("tensorflow", _register)
