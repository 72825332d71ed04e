"""The gradients that replicas sum, as frozen data; each of a pack on its own."""

from __future__ import annotations

import dataclasses

from tf_wu_shard.graph.op import Value
from tf_wu_shard.grounds.dialect import Gathered


@dataclasses.dataclass(frozen=True)
class EnsuredShape:
    """A shape that the graph does not prove, and that is checked when the step runs.

    Attributes:
        values: Per replica, the value that is to have it.
        shape: The shape.
        variable: The variable that the values are a gradient of, by its key.
    """

    values: tuple[Value, ...]
    shape: tuple[int, ...]
    variable: str


@dataclasses.dataclass(frozen=True)
class GradientReduction:
    """One gradient, summed over the replicas.

    Attributes:
        key: Its number in the analysis.
        operands: Per replica, the replica's own gradient, in any shape of `size` elements, or of
            what is `ensured`.
        results: Per replica, the value that holds the sum there.
        size: Elements of the gradient; None where they are known only when the step runs.
        dtype: The DataType enum's number.
        divisor: What the sum is divided by (1, or the number of replicas for a mean).
        carriers: The ops that carry the reduction, which may carry other gradients too.
        gathered: For a part of a sparse gradient, which the replicas put one after the other
            instead of adding them up, which one it is. Its size is then 0.
        order: For such a part, the replicas in the order in which their entries stand.
        ensured: What its operands are made of, and the shape that is checked before they travel;
            None where the graph proves it.
        depth: How many reductions, each of which an update is made of, have to come before it.
        ready: The place, in the order of the graph's ops, of the last op that its operands need.
    """

    key: int
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    size: int | None
    dtype: int
    divisor: int
    carriers: tuple[str, ...]
    gathered: Gathered | None = None
    order: tuple[int, ...] = ()
    ensured: EnsuredShape | None = None
    depth: int = 0
    ready: int = 0

    @property
    def num_replicas(self) -> int:
        """How many replicas take part."""
        return len(self.operands)
