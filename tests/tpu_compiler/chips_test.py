"""Every slice that can be named is of a chip that is known, with figures that make sense."""

from __future__ import annotations

import pytest

from tf_wu_shard.topology import parse_topology
from tf_wu_shard.tpu_compiler.chips import CHIPS

SLICES = ("v2:4x4", "v3:4x4", "v4:2x2x2", "v5e:4x4", "v5p:2x2x2", "v6e:4x4", "tpu7x:2x2x2")


@pytest.mark.parametrize("name", SLICES)
def test_a_slice_is_of_a_known_chip(name: str) -> None:
    chip = CHIPS[parse_topology(name).generation]
    # Between a few hundred MHz and a few GHz; a chip reads its memory in a fraction of a second.
    assert chip.cycles_per_second is None or 5e8 < chip.cycles_per_second < 3e9
    assert 0.01 < chip.hbm_bytes / chip.hbm_bytes_per_second < 0.1


def test_a_v4_chips_cores_are_joined_and_others_are_as_libtpu_has_them() -> None:
    joined = {name for name, chip in CHIPS.items() if chip.config != "default"}
    assert joined == {"v4"}
    assert parse_topology("v4:2x2x2").devices_per_chip == 1


def test_no_chip_is_listed_that_no_slice_has() -> None:
    assert {parse_topology(name).generation for name in SLICES} == set(CHIPS)
