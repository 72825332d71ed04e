"""Claims about topology.py: slices by name, and every device's place."""

from __future__ import annotations

import pytest

from tf_wu_shard.errors import OptionError
from tf_wu_shard.topology import parse_topology, topology_names


def test_sixteen_v5e_chips_are_four_hosts_of_two_by_two() -> None:
    topology = parse_topology("v5e:4x4")
    assert (topology.generation, topology.mesh, topology.num_devices) == ("v5e", (4, 4, 1), 16)
    assert [(x, y) for x, y, _, _ in topology.coordinates] == [
        *((0, 0), (1, 0), (0, 1), (1, 1)),
        *((2, 0), (3, 0), (2, 1), (3, 1)),
        *((0, 2), (1, 2), (0, 3), (1, 3)),
        *((2, 2), (3, 2), (2, 3), (3, 3)),
    ]


def test_a_narrow_slice_has_its_hosts_one_above_the_other() -> None:
    assert [(x, y) for x, y, _, _ in parse_topology("v5e:2x4").coordinates] == [
        *((0, 0), (1, 0), (0, 1), (1, 1)),
        *((0, 2), (1, 2), (0, 3), (1, 3)),
    ]


def test_a_cube_goes_layer_by_layer() -> None:
    coordinates = parse_topology("v5p:2x2x4").coordinates
    assert [z for *_, z, _ in coordinates] == [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4


@pytest.mark.parametrize(("name", "devices"), [("v3:2x2", 8), ("v4:2x2x1", 4), ("tpu7x:2x2x1", 8)])
def test_cores_are_devices_where_tensorflow_sees_them_so(name: str, devices: int) -> None:
    topology = parse_topology(name)
    assert topology.num_devices == devices
    per_chip = topology.devices_per_chip
    assert [core for *_, core in topology.coordinates] == list(range(per_chip)) * 4


@pytest.mark.parametrize("name", topology_names())
def test_every_device_has_a_place_of_its_own_inside_the_mesh(name: str) -> None:
    topology = parse_topology(name)
    places = topology.coordinates
    assert len(places) == len(set(places)) == topology.num_devices
    limits = (*topology.mesh, topology.devices_per_chip)
    assert all(0 <= at < limit for place in places for at, limit in zip(place, limits, strict=True))


@pytest.mark.parametrize("name", ["v5e:3x3", "v5e", "v5e:", "v9:4x4", "4x4", ""])
def test_an_unknown_slice_lists_the_known_ones(name: str) -> None:
    with pytest.raises(OptionError, match=r"unknown topology .*; choose one of v2:2x2, v2:4x4"):
        parse_topology(name)
