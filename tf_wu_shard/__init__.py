"""Automatic cross-replica sharding of the weight update for TensorFlow.

Importing registers the pass and teaches `tf.config.optimizer.set_experimental_options` the flag
`weight_update_sharding`; both happen when TensorFlow is imported, if it is not yet. Nothing
changes until the flag is set.
"""

import importlib
import sys
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


# The modules of what needs TensorFlow, each loaded when it is first asked for.
_LATER = {
    **dict.fromkeys(("clear_reports", "reports"), "report.published"),
    "Report": "report.report",
    **dict.fromkeys(("RewrittenGraphDef", "VariableInShards", "rewrite_graph_def"), "graph_def"),
    "deadline_dataset": "partial_sums.deadline",
    "with_lateness": "partial_sums.lateness",
    "flush_partial_sums": "partial_sums.rounds.registry",
    "estimate": "estimation.estimate",
    "summary": "estimation.model_summary",
}


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
    if name in ("emulation", "extending", "report"):
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "flush_partial_sums":
        # First, as it has the passes imported, and they this module.
        importlib.import_module("tensorflow")
    return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)


def _follow_keras() -> None:
    # With another backend it leaves TensorFlow alone.
    if "tensorflow" in sys.modules:
        from tf_wu_shard.tensorflow_private.variable_paths import note_paths

        note_paths()


deferred.when_imported("tensorflow", _register)
deferred.when_imported("keras", _follow_keras)
