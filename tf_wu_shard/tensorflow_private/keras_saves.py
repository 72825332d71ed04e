"""Being told before Keras writes a model to a file of its own."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

from tf_wu_shard.tensorflow_private.training_modules import MODELS
from tf_wu_shard.tensorflow_private.wrapping import wrap_once


def before_saves(tell: Callable[[], None]) -> None:
    """Tells of it from now on, in the Keras that is imported; once for all.

    Args:
        tell: Called on the thread that saves, each time.
    """

    def save(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        tell()
        return original(*args, **kwargs)

    for package, (module, name) in MODELS.items():
        if package in sys.modules:
            for method in ("save", "save_weights"):
                wrap_once(getattr(importlib.import_module(module), name), method, save)
