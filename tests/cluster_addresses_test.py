"""Ports of a cluster on this machine are free, all different, and nobody else's while held."""

from __future__ import annotations

import json
import socket

import pytest

from tf_wu_shard.cluster_addresses import held_ports, task_config


def test_a_held_port_can_be_listened_at_and_is_given_to_nobody_else() -> None:
    with held_ports(3) as ports:
        assert len(set(ports)) == 3
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("localhost", ports[0]))
        with socket.create_server(("127.0.0.1", ports[0])):
            pass
    with socket.socket() as other:
        other.bind(("localhost", ports[0]))


def test_each_worker_is_told_all_addresses_and_its_own_place() -> None:
    assert json.loads(task_config([7, 9], 1)) == {
        "cluster": {"worker": ["127.0.0.1:7", "127.0.0.1:9"]},
        "task": {"type": "worker", "index": 1},
    }
