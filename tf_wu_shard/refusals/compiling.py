"""Kinds of refusals: updates that are sharded, but not compiled."""

from __future__ import annotations

from tf_wu_shard.refusals.kind import Kind

_EXACT = 'ShardingOptions(compile_update="exact")'
_FAST = 'ShardingOptions(compile_update="fast"), which may round otherwise'


class Compiling(Kind):
    """Why XLA compiles nothing of what an update computes on its shards; it is sharded as ever."""

    SMALL_SHARDS = ("its shards have fewer than {limit} elements", _EXACT)
    ROWS_LOOKED_UP = "it updates as many rows of a table as a step looks up"
    LEFT_TO_AN_OWNER = "one replica computes it for all"
    DIVIDES_BY_ROOT = (
        "it divides by a square root, which TensorFlow's graph optimizer does in a way of its own",
        _FAST,
    )
    FEW_OPS = ("XLA computes fewer than two of its ops with the same bits", _FAST)
