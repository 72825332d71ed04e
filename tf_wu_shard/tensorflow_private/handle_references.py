"""Lets every component of a distributed variable be found from its resource handle.

TensorFlow notes the variable on the handle of an ordinary component, but not on one made while a
function is being traced. Here it is noted on all of them, from import on, and the trace with it,
and variables of several workers are counted.
"""

from __future__ import annotations

import gc
import weakref
from typing import Any

from tensorflow.python.distribute import values

from tf_wu_shard.tensorflow_private import creating_traces, variable_numbers
from tf_wu_shard.tensorflow_private.distributed_variables import original_handle
from tf_wu_shard.tensorflow_private.wrapping import wrap_once


def install() -> None:
    """Notes distributed variables on their handles, those alive and those to come.

    Walks all living objects once; a second call changes nothing.
    """

    def init(original: Any, variable: Any, *args: Any, **kwargs: Any) -> None:
        original(variable, *args, **kwargs)
        _note(variable)
        creating_traces.note(variable)
        variable_numbers.note(variable)

    if not wrap_once(values.DistributedVariable, "__init__", init):
        return
    before = [one for one in gc.get_objects() if isinstance(one, values.DistributedVariable)]
    for found in before:
        _note(found)
    variable_numbers.note_all(before)


def _note(variable: Any) -> None:
    for component in variable.values:
        handle = original_handle(component)
        if handle is None:
            continue
        if getattr(handle, "_distributed_container", None) is None:
            handle._distributed_container = weakref.ref(variable)
