"""Being told before the callbacks of a Keras fit are that an epoch has ended."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

from tf_wu_shard.tensorflow_private.training_modules import CALLBACK_LISTS
from tf_wu_shard.tensorflow_private.wrapping import wrap_once


def before_epochs_end(tell: Callable[[Any], None]) -> None:
    """Tells of the ends of epochs from now on, in the Keras that is imported; once for all.

    Args:
        tell: Called with the model on the program's own thread, each time.
    """

    def on_epoch_end(original: Callable[..., Any], owner: Any, *args: Any, **kwargs: Any) -> Any:
        tell(owner.model)
        return original(owner, *args, **kwargs)

    for package, (module, name) in CALLBACK_LISTS.items():
        if package in sys.modules:
            wrap_once(getattr(importlib.import_module(module), name), "on_epoch_end", on_epoch_end)
