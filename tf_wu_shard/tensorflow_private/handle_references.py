"""Lets every component of a distributed variable be found from its resource handle.

TensorFlow notes the variable on the handle of an ordinary component, but not on one made while a
function is being traced. Here it is noted on all of them, from import on.
"""

from __future__ import annotations

import functools
import gc
import weakref
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import values
from tensorflow.python.eager.polymorphic_function import polymorphic_function

from tf_wu_shard.tensorflow_private.distributed_variables import original_handle


def install() -> None:
    """Notes distributed variables on their handles, those alive and those to come.

    Walks all living objects once; a second call changes nothing.
    """
    original = values.DistributedVariable.__init__
    if getattr(original, "_wu_shard_hook", False):
        return

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        _note(self)

    init._wu_shard_hook = True  # type: ignore[attr-defined]
    values.DistributedVariable.__init__ = init
    for found in gc.get_objects():
        if isinstance(found, values.DistributedVariable):
            _note(found)


def is_being_created(handle: Any) -> bool:
    """Whether a handle's variable was made by a trace and has no value yet.

    The trace that makes a variable does not run once the variable has its value: `tf.function`
    traces again then.
    """
    reference = getattr(handle, "_wu_shard_made_while_tracing", None)
    component = reference() if reference is not None else None
    return component is not None and not _has_value(component)


def _has_value(component: Any) -> bool:
    with tf.init_scope():
        return bool(component.is_initialized())


def _note(variable: Any) -> None:
    for component in variable.values:
        handle = original_handle(component)
        if handle is None:
            continue
        if getattr(handle, "_distributed_container", None) is None:
            handle._distributed_container = weakref.ref(variable)
        unlifted = isinstance(component, polymorphic_function.UnliftedInitializerVariable)
        # Noted either way, as asking for an attribute that is not there is slow.
        handle._wu_shard_made_while_tracing = weakref.ref(component) if unlifted else None
