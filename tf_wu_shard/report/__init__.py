"""What was sharded, what was not and why, for people and for programs.

`TensorBoardReport`, a Keras callback, stands above all of this (`tf_wu_shard.tensorboard_report`)
and is loaded when it is first asked for.
"""

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    # By name: what is here answers without TensorFlow and knows nothing of what is built on it.
    if name == "TensorBoardReport":
        return importlib.import_module("tf_wu_shard.tensorboard_report").TensorBoardReport
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
