"""What Keras calls a variable: its path in the model, such as "sequential/dense_1/kernel".

TensorFlow calls a variable so that is made with its layer; of one that waits until the layer first
sees a batch it has the last word alone, "kernel", and every layer of the model has one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from tf_wu_shard.tensorflow_private.distributed_variables import noted_on
from tf_wu_shard.tensorflow_private.training_modules import VARIABLES
from tf_wu_shard.tensorflow_private.wrapping import wrap_once

# Where a variable of TensorFlow keeps the path that Keras gave it.
_ATTRIBUTE = "_wu_shard_path"


def note_paths() -> None:
    """Notes the paths of variables that are made from now on, in the Keras that is imported.

    A second call changes nothing. Nothing is noted by a Keras of another backend, nor by one that
    makes its variables elsewhere: they go by TensorFlow's names.
    """
    for module, name, method in VARIABLES.values():
        owner = getattr(sys.modules.get(module), name, None)
        if hasattr(owner, method):
            wrap_once(owner, method, _initialize)


def path_of(variable: Any) -> str:
    """What users call a variable: the path that Keras gave it, or else TensorFlow's name.

    Args:
        variable: A variable of TensorFlow, distributed or not.
    """
    path: str | None = noted_on(variable, _ATTRIBUTE)
    return path or str(variable.name).partition(":")[0]


def _initialize(original: Callable[..., Any], owner: Any, *args: Any, **kwargs: Any) -> None:
    original(owner, *args, **kwargs)
    made, path = getattr(owner, "_value", None), getattr(owner, "path", None)
    if made is not None and isinstance(path, str):
        setattr(made, _ATTRIBUTE, path)
