"""Datasets of a strategy whose replicas are traced and never fed.

TensorFlow gives every replica an iterator of its own, which starts to fetch at once; for hundreds
of replicas that takes minutes to set up and to take down. Here all of them are one iterator.
"""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf
from tensorflow.python.data.ops import multi_device_iterator_ops


def install() -> None:
    """Lets the devices of every dataset that is distributed from now on share one iterator."""
    multi_device = multi_device_iterator_ops.OwnedMultiDeviceIterator
    original = multi_device.__init__

    @functools.wraps(original)
    def __init__(self: Any, dataset: Any = None, devices: Any = None, **kwargs: Any) -> None:
        if dataset is None:
            # Inside a function, from its components; there is nothing to fetch.
            original(self, devices=devices, **kwargs)
            return
        self._element_spec = dataset.element_spec
        self._devices = devices
        self._source_device = kwargs["source_device"]
        with tf.device(self._source_device):
            iterator = iter(dataset)
        self._multi_device_iterator_resource = iterator._iterator_resource
        self._device_iterators = [iterator] * len(devices)

    multi_device.__init__ = __init__
