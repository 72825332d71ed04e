"""Groups of replicas along the axes of a TPU's torus, from where the replicas sit.

The TPU compiler keeps a reduce-scatter over the replicas of one axis as it is, and turns one over
all replicas of a larger torus into an all-reduce and a slice.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

Groups = tuple[tuple[int, ...], ...]


@dataclasses.dataclass(frozen=True)
class Torus:
    """The replicas of a program, in groups along each axis.

    Attributes:
        num_replicas: How many replicas there are.
        axes: For each axis the groups of replicas that differ along it alone, in order.
        held: Which shard each replica holds after a scatter along one axis after the other.
        place: The same for a reader: what is known of their places, and which groups follow.
    """

    num_replicas: int
    axes: tuple[Groups, ...]
    held: tuple[int, ...]
    place: str = dataclasses.field(compare=False)


def one_group(num_replicas: int, because: str = "topology not known") -> Torus:
    """All replicas in one group: what is left where nothing is known of their places.

    Args:
        num_replicas: How many.
        because: Why they are taken so.
    """
    replicas = tuple(range(num_replicas))
    place = f"{because}: one group of all replicas"
    return Torus(num_replicas, ((replicas,),), replicas, place)


def torus_of(coordinates: Sequence[tuple[int, ...]]) -> Torus:
    """The groups of replicas along each axis.

    Args:
        coordinates: Where each replica sits; the places form a box.

    Returns:
        The groups; axes of one place are left out. All in one group where the places are no box.
    """
    count = len(coordinates)
    places = [sorted({place[axis] for place in coordinates}) for axis in range(len(coordinates[0]))]
    if len(set(coordinates)) != count or math.prod(len(p) for p in places) != count:
        return one_group(count, "the replicas' places form no box")
    longer = [axis for axis, found in enumerate(places) if len(found) > 1]
    if not longer:
        return one_group(count, "a single replica")
    axes = []
    for axis in longer:
        groups: dict[tuple[int, ...], list[int]] = {}
        for replica in sorted(range(count), key=lambda r: coordinates[r][axis]):
            rest = (*coordinates[replica][:axis], *coordinates[replica][axis + 1 :])
            groups.setdefault(rest, []).append(replica)
        axes.append(tuple(sorted(tuple(group) for group in groups.values())))
    held = []
    for place in coordinates:
        number = 0
        for axis in longer:
            number = number * len(places[axis]) + places[axis].index(place[axis])
        held.append(number)
    return Torus(count, tuple(axes), tuple(held), _described([len(places[a]) for a in longer]))


def _described(sizes: Sequence[int]) -> str:
    torus = "x".join(map(str, sizes))
    if len(sizes) == 1:
        return f"a row of {torus} replicas: one group of all"
    groups = ", then of ".join(map(str, sizes))
    return f"a {torus} torus: collectives along one axis at a time, in groups of {groups}"
