"""Being told when a Keras fit has taken the steps of an epoch, before it does anything else."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

from tf_wu_shard.tensorflow_private.training_modules import CALLBACK_LISTS, TRAINERS
from tf_wu_shard.tensorflow_private.wrapping import wrap_once


def before_epochs_end(tell: Callable[[Any], None]) -> None:
    """Tells of it from now on, in the Keras that is imported; once for all.

    Args:
        tell: Called with the model on the program's own thread, before fit validates and before
            callbacks are told of the end of an epoch.
    """

    def evaluate(original: Callable[..., Any], owner: Any, *args: Any, **kwargs: Any) -> Any:
        # By which fit says that it is the one who evaluates.
        if kwargs.get("_use_cached_eval_dataset"):
            tell(owner)
        return original(owner, *args, **kwargs)

    def on_epoch_end(original: Callable[..., Any], owner: Any, *args: Any, **kwargs: Any) -> Any:
        tell(owner.model)
        return original(owner, *args, **kwargs)

    for owners, method, around in (
        (TRAINERS, "evaluate", evaluate),
        (CALLBACK_LISTS, "on_epoch_end", on_epoch_end),
    ):
        for package, (module, name) in owners.items():
            if package in sys.modules:
                wrap_once(getattr(importlib.import_module(module), name), method, around)
