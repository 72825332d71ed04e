"""Python code that an op of a graph calls when it runs, as `tf.numpy_function` has it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tensorflow.python.ops import script_ops

# The op that calls.
CALL = "PyFunc"


def token_of(function: Callable[[], np.ndarray]) -> str:
    """What a `CALL` op has as its `token` to call a function.

    Args:
        function: The function; the caller keeps it alive as long as the graph.
    """
    return str(script_ops._py_funcs.insert(function))
