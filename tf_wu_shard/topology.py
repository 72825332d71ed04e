"""Which TPU slices there are, and where in its torus each device sits.

Answers: the devices of "v5e:4x4" and their coordinates, in the order in which the TPU compiler
numbers them. Plain integers, held by a test against what the compiler says of every name.
"""

from __future__ import annotations

import dataclasses
import itertools

from tf_wu_shard.errors import OptionError

_FLAT = ("2x2", "4x4", "8x8", "16x16")
_EDGE = ("1x1", "2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16")
_CUBE = ("2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4", "4x4x8", "4x8x8", "8x8x8")

# Generation -> TensorFlow devices on a chip, and the slices that Cloud TPU offers, chips per axis.
# A v4 or v5p chip's two cores act as one device ("megacore"). The compiler would take any even
# sides; what cannot be rented is more often a typing error than a wish.
_GENERATIONS = {
    "v2": (2, _FLAT),
    "v3": (2, (*_FLAT, "32x32")),
    "v4": (1, _CUBE),
    "v5e": (1, _EDGE),
    "v5p": (1, _CUBE),
    "v6e": (1, _EDGE),
    "tpu7x": (2, _CUBE),
}

# A host has a square of two by two chips, or what there is of it in a smaller slice.
_HOST_SIDE = 2


@dataclasses.dataclass(frozen=True)
class Topology:
    """A slice of TPU chips.

    Attributes:
        name: Such as "v5e:4x4".
        mesh: Chips along x, y and z.
        devices_per_chip: Devices that TensorFlow sees on a chip.
    """

    name: str
    mesh: tuple[int, int, int]
    devices_per_chip: int

    @property
    def generation(self) -> str:
        """The part of the name before the colon, such as "v5e"."""
        return self.name.partition(":")[0]

    @property
    def num_devices(self) -> int:
        """How many devices the slice has; as many replicas train on it."""
        return self.mesh[0] * self.mesh[1] * self.mesh[2] * self.devices_per_chip

    @property
    def coordinates(self) -> tuple[tuple[int, int, int, int], ...]:
        """Where each device sits: (x, y, z, device on the chip).

        Host by host, x varying fastest over the hosts, and so again over the chips of a host.
        """
        x, y, z = self.mesh
        columns, rows = (min(_HOST_SIDE, side) for side in (x, y))
        return tuple(
            (column + i, row + j, k, core)
            for k, row, column in itertools.product(
                range(z), range(0, y, rows), range(0, x, columns)
            )
            for j, i, core in itertools.product(
                range(rows), range(columns), range(self.devices_per_chip)
            )
        )


def topology_names() -> tuple[str, ...]:
    """Every name that `parse_topology` knows."""
    return tuple(f"{g}:{shape}" for g, (_, shapes) in _GENERATIONS.items() for shape in shapes)


def parse_topology(name: str) -> Topology:
    """Finds a slice by its name.

    Args:
        name: Generation and chips per axis, such as "v5e:4x4" or "v4:2x2x4".

    Returns:
        The slice.

    Raises:
        OptionError: There is no such slice; the message lists those there are.
    """
    generation, _, shape = name.partition(":")
    devices, shapes = _GENERATIONS.get(generation, (0, ()))
    if shape not in shapes:
        raise OptionError(f"unknown topology {name!r}; choose one of {', '.join(topology_names())}")
    sides = [int(side) for side in shape.split("x")]
    x, y, z = (*sides, 1)[:3]
    return Topology(name, (x, y, z), devices)
