"""Python code that an op of a graph calls when it runs.

A `CALL` hands over NumPy arrays, as `tf.numpy_function` has it; an `EAGER_CALL` eager tensors, as
`tf.py_function` has it, but without a tape: that would keep what was last handed over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import script_ops

# The ops that call.
CALL = "PyFunc"
EAGER_CALL = "EagerPyFunc"


def token_of(function: Callable[[], np.ndarray]) -> str:
    """What a `CALL` op has as its `token` to call a function.

    Args:
        function: The function; the caller keeps it alive as long as the graph.
    """
    return str(script_ops._py_funcs.insert(function))


class EagerCall:
    """A function that `EAGER_CALL` ops call; keep it alive as long as the graph.

    Attributes:
        token: What the op has as its `token`.
        types: Of each result, the DataType enum's number.
    """

    def __init__(self, function: Callable[..., Any], types: Sequence[int]) -> None:
        """Makes it callable.

        Args:
            function: It takes the op's operands and returns a list of its results.
            types: Of each result, the DataType enum's number.
        """
        self.types = tuple(types)
        outputs = [tf.as_dtype(one) for one in types]
        self._function = script_ops.EagerFunc(function, outputs, is_grad_func=False)
        self.token = str(script_ops._py_funcs.insert(self._function))
