"""The table of texts that TensorFlow's coordination service keeps for the workers of a cluster.

TensorFlow's context gives three calls for it. It does not promise that the service lives: errors of
TensorFlow pass through. Nothing here may be called before the strategy of several workers is made,
as the first call initializes the context, and no cluster can be configured after that.
"""

from __future__ import annotations

import tensorflow as tf
from tensorflow.python.eager import context


def insert(key: str, text: str) -> bool:
    """Inserts a text once for the whole cluster.

    Args:
        key: Its key.
        text: A text of a few MiB at most, as it travels in one message.

    Returns:
        False when the key is taken.

    Raises:
        tf.errors.OpError: The service cannot be reached, or there is none.
    """
    try:
        context.context().set_config_key_value(key, text)
    except tf.errors.AlreadyExistsError:
        return False
    return True


def get(key: str, milliseconds: int) -> str | None:
    """Reads a text; other threads run while it waits.

    A wait that ends without a text leaves a call behind at the service, until the key comes.

    Args:
        key: Its key.
        milliseconds: How long to wait for it, the time for asking included; 0 is without end.

    Returns:
        The text, or None when it did not come.

    Raises:
        tf.errors.OpError: The service cannot be reached, or there is none.
    """
    try:
        text: str = context.context().get_config_key_value(key, milliseconds)
    except tf.errors.DeadlineExceededError:
        return None
    return text


def remove(key: str) -> None:
    """Removes a key and all keys below it, `key/...`; those that are missing are fine.

    Args:
        key: The key.

    Raises:
        tf.errors.OpError: The service cannot be reached, or there is none.
    """
    context.context().delete_config_key_value(key)
