"""The few array ops on shards that communication is made of, spelled once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tf_wu_shard.dtypes import item_bytes
from tf_wu_shard.graph.builder import Emitter
from tf_wu_shard.graph.op import Value
from tf_wu_shard.layout import ALIGNMENT_BYTES
from tf_wu_shard.placement import Combine

# The op that combines the elements of one tensor.
EXTREMA: dict[Combine, str] = {Combine.MAX: "Max", Combine.MIN: "Min"}


def lane_elements(dtype: int) -> int:
    """Elements that fill one alignment unit; shards begin at multiples of it."""
    return max(1, ALIGNMENT_BYTES // item_bytes(dtype))


def combined(at: Emitter, terms: Sequence[Value], combine: Combine, name: str) -> Value:
    """Tensors of one shape combined, element by element."""
    if combine is Combine.SUM or len(terms) == 1:
        return at.ordered_sum(terms, name)
    stacked = at.op("Pack", terms, f"{name}/parts", axis=0)
    return at.op(EXTREMA[combine], [stacked, at.constant([0])], name)


def divided(at: Emitter, total: Value, divisor: int) -> Value:
    """A sum divided by a number, as a mean is made of it; by 1 it is the sum itself."""
    if divisor == 1:
        return total
    return at.op("RealDiv", [total, at.constant(divisor, at.dtype(total))], "mean")


def lists_of_each(
    at: Emitter, devices: Sequence[str], parts: Mapping[str, Sequence[Value]]
) -> dict[str, list[Value]]:
    """Lists put one after the other, by name, once on every device."""
    return {name: [at.on(d).concat(lists, name) for d in devices] for name, lists in parts.items()}
