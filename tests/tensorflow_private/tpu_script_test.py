"""A script that asks for a TPU, by whatever name, finds one whose devices sit where it was said."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.distribute import tpu_strategy as tf_tpu_strategy
from tensorflow.python.eager import context
from tensorflow.python.tpu import tpu_strategy_util

from tf_wu_shard.tensorflow_private import tpu_script
from tf_wu_shard.tensorflow_private.tpu_strategy import replica_coordinates, tpu_topology

COORDINATES = [(0, 0, 0, 0), (1, 0, 0, 0)]

Resolver = tf.distribute.cluster_resolver.TPUClusterResolver

REPLACED = [
    *((Resolver, name) for name in ("__init__", "environment", "__deepcopy__")),
    *((Resolver, name) for name in tpu_script._ASKED),
    *((tpu_strategy_util, f"{verb}_tpu_system_impl") for verb in ("initialize", "shutdown")),
    (context.Context, "list_logical_devices"),
    (context.Context, "list_physical_devices"),
    (context.Context, "get_visible_devices"),
    (tf_tpu_strategy.TPUExtended, "__init__"),
]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, logical_cpus: list[str]) -> list[Any]:
    """The strategies that a script makes, after which TensorFlow is as it was."""
    for owner, name in REPLACED:
        monkeypatch.setattr(owner, name, getattr(owner, name, None), raising=False)
    monkeypatch.setattr(tpu_strategy_util, "_INITIALIZED_TPU_SYSTEMS", {})
    strategies: list[Any] = []
    tpu_script.install(2, tpu_topology((2, 1, 1), COORDINATES), strategies.append)
    return strategies


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize("name", ["my-tpu", "grpc://10.0.0.2:8470", "local", None])
def test_any_name_finds_the_tpu(name: str | None) -> None:
    resolver = Resolver(tpu=name, zone="a", project="b")
    assert resolver._tpu == (name or "")
    assert resolver.num_accelerators() == {"TPU": 2}
    assert resolver.get_tpu_system_metadata().num_cores == 2
    assert resolver.master() == resolver.get_master() == ""
    assert (resolver.environment, resolver.task_type, resolver.task_id) == ("", "worker", 0)


@pytest.mark.usefixtures("made")
def test_its_system_starts_at_once_and_stops() -> None:
    resolver = Resolver("my-tpu")
    topology = tf.tpu.experimental.initialize_tpu_system(resolver)
    assert topology.device_coordinates.tolist() == [[list(place) for place in COORDINATES]]
    systems = tpu_strategy_util._INITIALIZED_TPU_SYSTEMS
    assert systems == {"my-tpu": topology}
    tf.tpu.experimental.shutdown_tpu_system(resolver)
    assert systems == {}


@pytest.mark.usefixtures("made")
def test_its_devices_are_listed_beside_those_that_are_there(logical_cpus: list[str]) -> None:
    names = [device.name for device in tf.config.list_logical_devices("TPU")]
    assert names == ["/device:TPU:0", "/device:TPU:1"]
    for listed in (tf.config.list_physical_devices, tf.config.get_visible_devices):
        assert [device.device_type for device in listed("TPU")] == ["TPU", "TPU"]
    assert len(tf.config.list_logical_devices("CPU")) > len(logical_cpus)
    # What a script does to a list is nothing to the next one that asks.
    tf.config.list_logical_devices("TPU").clear()
    assert len(tf.config.list_logical_devices("TPU")) == 2


def test_every_strategy_is_told_as_soon_as_it_is_made(made: list[Any]) -> None:
    strategy = tf.distribute.TPUStrategy(Resolver("my-tpu"))
    assert made == [strategy.extended] and strategy.num_replicas_in_sync == 2
    assert replica_coordinates(strategy) == COORDINATES
