"""The errors a user can meet, all children of one base.

Answers: what can be caught, and as what. A variable that cannot be sharded is not an error but a
refusal in the report; these are for impossible requests. It does not promise that an error of
TensorFlow's own is ever turned into one of these.
"""

from __future__ import annotations


class WuShardError(Exception):
    """Base of every error that tf_wu_shard raises on purpose."""

    # AutoGraph raises its StagingError in place of what its converted code raises, a loop over a
    # dataset, say, and lets through what has this attribute.
    ag_pass_through = True


class UnsupportedTensorFlowError(WuShardError, ImportError):
    """The installed TensorFlow lacks what the package needs; the message says what and what to do.

    Raised where the package is imported, or TensorFlow after it.
    """


class OptionError(WuShardError, ValueError):
    """An option has a name or a value that means nothing; the message lists the valid ones."""


class TooLittleShardedError(WuShardError, RuntimeError):
    """Less of a function's update is sharded than `ShardingOptions.min_sharded` asks for."""


class NothingShardedError(TooLittleShardedError):
    """The flag is on with `on_refusal="raise"`, and a function came out with nothing sharded."""


class StorageError(WuShardError, RuntimeError):
    """A sharded slot was asked for something that its storage cannot give."""


class EmulationError(WuShardError, NotImplementedError):
    """A TPU program holds something that cannot run without a TPU; the message names it."""


class GraphDefError(WuShardError, ValueError):
    """What was given as a GraphDef is none, or one that TensorFlow does not take."""


class ModelFileError(WuShardError, ValueError):
    """A file holds no model that can be read; the message says what is wrong in one line."""
