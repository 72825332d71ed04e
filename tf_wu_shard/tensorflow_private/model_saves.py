"""Being told before a model is written to files of its own: Keras', or a SavedModel."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

from tf_wu_shard.tensorflow_private.training_modules import SAVES
from tf_wu_shard.tensorflow_private.wrapping import wrap_once


def before_saves(tell: Callable[[Any], None]) -> None:
    """Tells of it from now on, in the Keras that is imported; once for all.

    Args:
        tell: Called with the model on the thread that saves, each time; more than once where one
            function that saves calls another.
    """

    def save(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        # All of them take it first, under names of their own.
        tell(next(iter([*args, *kwargs.values()]), None))
        return original(*args, **kwargs)

    for package, functions in SAVES.items():
        if package in sys.modules:
            for module, name in functions:
                wrap_once(importlib.import_module(module), name, save)
