"""Puts code of ours around a function of TensorFlow, for the life of the process."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

# Noted on what stands in the place of a function of TensorFlow.
_IS_OURS = "_wu_shard_hook"


def wrap_once(owner: Any, name: str, around: Callable[..., Any]) -> bool:
    """Lets a function be called in the place of another, which it gets as its first argument.

    Args:
        owner: The module or class that has the function.
        name: The function's name there.
        around: Called with the function that was there and then with all that the caller hands
            over, `self` included; what it returns, the caller gets.

    Returns:
        Whether it was done: nothing is done where code of ours is around the function already.
    """
    original = getattr(owner, name)
    if hasattr(original, _IS_OURS):
        return False

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return around(original, *args, **kwargs)

    setattr(wrapped, _IS_OURS, True)
    setattr(owner, name, wrapped)
    return True


def unwrap(owner: Any, name: str) -> None:
    """Takes away what `wrap_once` put around a function, and what others put around that."""
    # What others put around it has its attributes.
    around = getattr(owner, name)
    setattr(owner, name, inspect.unwrap(around, stop=lambda one: not hasattr(one, _IS_OURS)))
