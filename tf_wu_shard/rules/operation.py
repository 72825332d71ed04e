"""An op as its rule sees it, and what a shard computes in its place. Plain data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tf_wu_shard.graph.op import Value, attribute_in


@dataclasses.dataclass(frozen=True)
class Operation:
    """One op.

    Attributes:
        type: Its type.
        name: Its name, for refusals.
        inputs: What its operands are called.
        attributes: The `attr` of its NodeDef, never modified.
        constants: By number, the elements of those operands that its rule goes by, where they are
            integers known when the step is traced.
        shape: The logical shape of its first result, if that is known.
        dtype: The element type of that, as a DataType number.
    """

    type: str
    name: str
    inputs: tuple[Value, ...]
    attributes: Any
    constants: Mapping[int, tuple[int, ...]]
    shape: tuple[int, ...] | None
    dtype: int

    def attribute(self, name: str) -> Any:
        """One of its attributes, to be read; see `attribute_in`."""
        return attribute_in(self.attributes, name)


@dataclasses.dataclass(frozen=True)
class OwnRows:
    """A constant that a shard's number of rows is part of.

    Attributes:
        dtype: Its element type, as a DataType number.
        behind: The sizes that follow the number in a shape; None where it is the number alone.
    """

    dtype: int
    behind: tuple[int, ...] | None = None

    def of(self, num_rows: int) -> int | list[int]:
        """The constant for a shard of so many rows."""
        return num_rows if self.behind is None else [num_rows, *self.behind]


@dataclasses.dataclass(frozen=True)
class LocalOp:
    """What a shard computes in the place of an op, where it is not the same op on its shards.

    Attributes:
        operands: Numbers of the op's operands, and constants.
        type: The type of another op, whose attributes follow from its operands; "" where it is the
            op itself, with its attributes.
        in_order: Whether it is an addition that must not be merged with its neighbours.
    """

    operands: tuple[int | OwnRows, ...]
    type: str = ""
    in_order: bool = False
