"""A module is compiled for one replica on each device, in the order of the devices."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf  # noqa: F401  sets the package up
from jax._src.lib import xla_client

from tf_wu_shard.tpu_compiler import executables


class Module:
    """Notes whether its context is the one at work."""

    def __init__(self) -> None:
        self.at_work = False

    @property
    @contextlib.contextmanager
    def context(self) -> Iterator[None]:
        self.at_work = True
        yield
        self.at_work = False


class Client:
    """Compiles nothing, and keeps what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def compile(self, module: Module, **given: Any) -> str:
        assert module.at_work
        self.asked.append(types.SimpleNamespace(**given))
        return "compiled"


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Of one client, numbered in no order."""
    monkeypatch.setattr(xla_client, "DeviceList", list)
    client = Client()
    return [types.SimpleNamespace(id=number, client=client) for number in (5, 2, 7)]


def compiled(devices: list[Any]) -> Any:
    """What the client was asked for."""
    assert executables.compile_ahead(Module(), devices) == "compiled"
    (asked,) = devices[0].client.asked
    return asked


def test_the_module_is_compiled_by_the_devices_client_for_all_of_them(devices: list[Any]) -> None:
    assert compiled(devices).executable_devices == devices


def test_both_levels_of_options_have_a_replica_for_each_device(devices: list[Any]) -> None:
    options = compiled(devices).compile_options
    for level in (options, options.executable_build_options):
        assert (level.num_replicas, level.num_partitions) == (3, 1)


def test_replica_i_is_for_the_ith_device(devices: list[Any]) -> None:
    assigned = compiled(devices).compile_options.executable_build_options.device_assignment
    assert (assigned.replica_count(), assigned.computation_count()) == (3, 1)
    in_order, sorted_ = (
        xla_client.DeviceAssignment.create(np.array(ids, np.int32))
        for ids in ([[5], [2], [7]], [[2], [5], [7]])
    )
    assert assigned.serialize() == in_order.serialize() != sorted_.serialize()
