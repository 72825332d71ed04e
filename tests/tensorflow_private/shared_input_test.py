"""The devices of a distributed dataset share one iterator, but for one made of components."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.data.ops import multi_device_iterator_ops

from tf_wu_shard.tensorflow_private import shared_input

DEVICES = ("/device:CPU:1", "/device:CPU:2", "/device:CPU:3")

Iterator = multi_device_iterator_ops.OwnedMultiDeviceIterator


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, logical_cpus: list[str]) -> list[Any]:
    """What TensorFlow's own initializer is called with."""
    calls: list[Any] = []
    monkeypatch.setattr(Iterator, "__init__", lambda self, **given: calls.append(given))
    shared_input.install()
    return calls


def test_all_devices_have_the_one_iterator(made: list[Any]) -> None:
    data = tf.data.Dataset.range(3).map(lambda number: {"x": number})
    found = Iterator(data, devices=DEVICES, source_device="/device:CPU:4")
    first, second, third = found._device_iterators
    assert first is second is third
    assert found._multi_device_iterator_resource is first._iterator_resource
    assert made == []


def test_it_says_what_elements_and_devices_it_has_and_begins_where_the_data_do(
    made: list[Any],
) -> None:
    data = tf.data.Dataset.range(3).map(lambda number: {"x": number})
    found = Iterator(data, devices=DEVICES, source_device="/device:CPU:4", max_buffer_size=9)
    assert found.element_spec == {"x": tf.TensorSpec((), tf.int64)}
    assert (found._devices, found._source_device) == (DEVICES, "/device:CPU:4")
    assert int(next(found._device_iterators[2])["x"]) == 0


def test_one_of_components_is_made_as_tensorflow_makes_it(made: list[Any]) -> None:
    Iterator(devices=DEVICES, components=["resource"], element_spec="spec")
    assert made == [{"devices": DEVICES, "components": ["resource"], "element_spec": "spec"}]
