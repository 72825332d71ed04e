"""One planned update of a function as data, to be drawn: its ops, and what flows between them.

All of it is read off the graph and the plan. What neither says (a shape that no file records) is
None, not a guess.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class PictureTensor:
    """A value on one replica.

    Attributes:
        shape: Its shape.
        dtype: Its element type, such as "float32".
        bytes: How many it has.
    """

    shape: tuple[int, ...]
    dtype: str
    bytes: int


@dataclasses.dataclass(frozen=True)
class PictureGradient:
    """A gradient that enters the update.

    Attributes:
        op: Name of the op that yields it on a replica.
        sum_op: Name of the op that sums it over the replicas; "" where the graph has none, as it
            was traced on one device.
        whole: The gradient.
        shard: What a replica has of it after a reduce-scatter.
    """

    op: str
    sum_op: str
    whole: PictureTensor
    shard: PictureTensor


@dataclasses.dataclass(frozen=True)
class PictureOp:
    """An op of the update; by the way it is ordered, after all that it reads.

    Attributes:
        name: Its name.
        type: Its type, such as "AssignAddVariableOp".
        reads: Positions of the ops of the update whose results it reads.
        gradients: Positions of the gradients that it reads.
        follows: Position of the op that wrote the variable that it reads, or None.
        part: The number, from 0, of the first write to which it contributes.
        writes_for: The variable that is written there; "" where it contributes to no write.
        variable: The variable that it reads or writes, or "".
        writes: Whether it writes that variable.
        whole: Its result, or what it writes, where every replica does the whole update; None where
            it has none or its shape is not recorded.
        shard: The same on one replica's shard.
        summed: Whether it sums over shards, so that the replicas exchange its result.
    """

    name: str
    type: str
    reads: tuple[int, ...]
    gradients: tuple[int, ...]
    follows: int | None
    part: int
    writes_for: str
    variable: str
    writes: bool
    whole: PictureTensor | None
    shard: PictureTensor | None
    summed: bool


@dataclasses.dataclass(frozen=True)
class UpdatePicture:
    """One update, without and with sharding.

    Attributes:
        variable: Its weight.
        replicas: How many share it.
        layout: How it is cut.
        owned: Whether one replica does it whole.
        gradients: What enters it.
        ops: Its ops.
        weight: The weight.
        weight_shard: What a replica updates of it.
        gathered: What the weight is put together as, where a replica needs it whole.
        in_shards: The variables that are kept in shards between steps.
        weight_in_shards: Whether it is kept in shards and put together where the step reads it;
            else it is put together after the update.
    """

    variable: str
    replicas: int
    layout: str
    owned: bool
    gradients: tuple[PictureGradient, ...]
    ops: tuple[PictureOp, ...]
    weight: PictureTensor
    weight_shard: PictureTensor
    gathered: PictureTensor
    in_shards: tuple[str, ...]
    weight_in_shards: bool
