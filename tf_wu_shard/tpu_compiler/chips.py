"""What a TPU chip can do, as far as an estimate of a step needs it.

Clock: peak operations a second, divided by two operations for each cell of the matrix units. Both,
and bytes and bandwidth of the memory, are those of Google Cloud's pages on each generation; given
for one device as TensorFlow sees it, so half a chip's where a chip is two devices.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Chip:
    """One device.

    Attributes:
        cycles_per_second: Its clock; None where it does not follow from what is published.
        hbm_bytes: Its memory.
        hbm_bytes_per_second: The bandwidth of that memory.
        config: libtpu's name for how the chip's cores are joined into devices.
    """

    cycles_per_second: float | None
    hbm_bytes: int
    hbm_bytes_per_second: float
    config: str = "default"


_GIB = 2**30

CHIPS = {
    "v2": Chip(0.70e9, 8 * _GIB, 350e9),
    "v3": Chip(0.94e9, 16 * _GIB, 450e9),
    "v4": Chip(1.05e9, 32 * _GIB, 1228e9, "megacore"),
    "v5e": Chip(1.50e9, 16 * _GIB, 819e9),
    "v5p": Chip(1.75e9, 95 * _GIB, 2765e9),
    "v6e": Chip(None, 32 * _GIB, 1640e9),
    "tpu7x": Chip(None, 96 * _GIB, 3690e9),
}
