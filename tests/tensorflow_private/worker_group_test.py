"""Which worker this is, who the others are and what it has begun follow from a strategy."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.distribute import cross_device_utils
from tensorflow.python.ops import collective_ops

from tf_wu_shard.errors import StorageError
from tf_wu_shard.tensorflow_private import worker_group
from tf_wu_shard.tensorflow_private.instance_keys import InstanceKeys
from tf_wu_shard.tensorflow_private.worker_group import Peer


class Launcher:
    """Begins the collectives of one device, in a group whose key is 7."""

    def __init__(self, device: str, keys: Any = None) -> None:
        self._device = device
        self._group_key = 7
        self._options = types.SimpleNamespace(
            implementation=types.SimpleNamespace(value="ring"), timeout_seconds=5.0
        )
        self._collective_keys = keys

    def _get_ordering_token(self) -> str:
        return f"token of {self._device}"


def strategy(
    first: int = 0,
    here: int = 1,
    total: int = 3,
    cluster: dict[str, Any] | None = None,
    launchers: Sequence[Launcher] = (),
) -> Any:
    """A strategy of several workers.

    Args:
        first: The number of this worker's first replica among all.
        here: How many replicas a worker has.
        total: How many there are.
        cluster: The addresses of tasks, by job.
        launchers: What begins collectives.
    """
    spec = tf.train.ClusterSpec(cluster or {})
    return types.SimpleNamespace(
        num_replicas_in_sync=total,
        cluster_resolver=types.SimpleNamespace(cluster_spec=lambda: spec),
        extended=types.SimpleNamespace(
            worker_devices=("d",) * here,
            _get_replica_id_in_sync_group=lambda replica: first + replica,
            _cross_device_ops=types.SimpleNamespace(_launchers=launchers),
        ),
    )


def test_a_workers_number_follows_from_its_first_replica() -> None:
    for first, number in ((0, 0), (2, 1), (4, 2)):
        own = strategy(first, here=2, total=6)
        assert worker_group.number_of(own) == number
    assert (worker_group.count_of(own), worker_group.replicas_of(own)) == (3, 2)


def test_no_group_of_a_place_has_the_key_of_another_or_of_all() -> None:
    keys = [worker_group.key_between_nodes(key, place) for key in (1, 2, 99) for place in range(8)]
    assert len({*keys}) == 24 and min(keys) > 999_999


def test_the_others_are_known_by_task_and_address_where_the_cluster_has_no_other_tasks() -> None:
    cluster = {"chief": ["a:1"], "worker": ["b:2", "[::1]:3"]}
    assert worker_group.peers_of(strategy(1, cluster=cluster)) == {
        0: Peer("/job:chief/replica:0/task:0", ("a", 1)),
        2: Peer("/job:worker/replica:0/task:1", ("::1", 3)),
    }
    without_a_port = {"worker": ["a:1", "b"]}
    found = worker_group.peers_of(strategy(0, total=2, cluster=without_a_port))
    assert found == {1: Peer("/job:worker/replica:0/task:1", None)}
    assert worker_group.peers_of(strategy(0, total=3, cluster=without_a_port)) == {}


def test_the_collectives_of_all_groups_and_devices_are_counted() -> None:
    keys = cross_device_utils.CollectiveKeys()
    begun = worker_group.counter_of(strategy(launchers=[Launcher("d0", keys)]))
    one, both = keys.get_group_key(["d0"]), keys.get_group_key(["d0", "d1"])
    assert begun() == 0
    for group, device in ((one, "d0"), (both, "d0"), (both, "d1"), (both, "d1")):
        keys.get_instance_key(group, device)
    assert begun() == 4


@pytest.mark.parametrize(
    ("orders", "groups"),
    [([(1.0, 0.0)], {7}), ([(1.0, 0.0), (1.0, 0.0)], {1_000_007, 2_000_007})],
    ids=("one device each", "two devices each"),
)
def test_the_order_of_the_workers_is_what_a_gather_of_their_numbers_gives(
    orders: list[tuple[float, ...]], groups: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = gathers(monkeypatch, *orders)
    launchers = [Launcher(f"/device:CPU:{place}") for place, _ in enumerate(orders)]
    own = strategy(len(orders), len(orders), 2 * len(orders), launchers=launchers)
    assert worker_group.members_of(own) == (1, 0)
    assert {group for _, _, group, _ in asked} == groups
    for (number, count, _, key), launcher in zip(asked, launchers, strict=True):
        assert (number, count) == ([1.0], 2)
        # A key that no strategy counts, of the group of all; the next one follows it.
        following = InstanceKeys(launcher._group_key, launcher._device).following()
        assert int(following) == int(key) + 1 > 2**30


def test_places_in_different_orders_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    gathers(monkeypatch, (1.0, 0.0), (0.0, 1.0))
    launchers = [Launcher(f"/device:CPU:{place}") for place in range(2)]
    with pytest.raises(StorageError, match=r"different orders in their groups: \[\(0, 1\), \(1, 0"):
        worker_group.members_of(strategy(0, 2, 4, launchers=launchers))


def gathers(monkeypatch: pytest.MonkeyPatch, *orders: tuple[float, ...]) -> list[Any]:
    """Lets gathers give these, one after the other, and tells with what they were asked."""
    asked: list[Any] = []
    waiting = list(orders)

    def all_gather(number: Any, count: int, group: int, key: Any, **given: Any) -> np.ndarray:
        assert given["communication_hint"] == "ring" and given["timeout"] == 5.0
        asked.append((number.numpy().tolist(), count, group, key))
        return np.array(waiting.pop(0))

    monkeypatch.setattr(collective_ops, "all_gather_v2", all_gather)
    return asked
