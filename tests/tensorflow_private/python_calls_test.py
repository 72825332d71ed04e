"""A function is called by its token when the op runs, as long as somebody keeps it."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tf_wu_shard.tensorflow_private.python_calls import CALL, token_of


def test_the_op_calls_the_function_of_its_token_each_time_it_runs() -> None:
    calls: list[int] = []

    def function() -> np.ndarray:
        calls.append(1)
        return np.array(len(calls), np.int64)

    token = token_of(function)
    call = tf.function(lambda: getattr(tf.raw_ops, CALL)(input=[], token=token, Tout=[tf.int64])[0])
    assert [int(call()), int(call())] == [1, 2]


def test_two_functions_have_two_tokens() -> None:
    def one() -> np.ndarray:
        return np.array(1)

    def other() -> np.ndarray:
        return np.array(2)

    assert token_of(one) != token_of(other)
