"""Kinds of refusals: ops and their rules."""

from __future__ import annotations

from tf_wu_shard.refusals import lifted_by
from tf_wu_shard.refusals.kind import Kind


class Rules(Kind):
    """Where the rules for shards end: a replica that holds everything whole could go on."""

    def __init__(self, says: str, cure: str) -> None:
        """See `Kind`."""
        super().__init__(says, cure, of_rules=True)

    NO_RULE = ("no rule for {op_type}", lifted_by.OTHER_OP)
    RESULT_SHAPE_UNKNOWN = (
        "the shape of its result is not known when the step is traced",
        lifted_by.FIXED_SHAPES,
    )
    BROADCASTS = ("it broadcasts {shape} over {result}", lifted_by.OF_ONE_SHAPE)
    RESIZES = ("it makes {result} of {shape}", lifted_by.OF_ONE_SHAPE)
    SHARDED_AXES = (
        "it takes its axes from the values of a sharded tensor",
        lifted_by.CONSTANT_AXES,
    )
    SHARDED_SHAPE = (
        "it takes a shape from the values of a sharded tensor",
        "a shape that is a constant",
    )
    AXES_UNKNOWN = ("the axes of its sum are not known when traced", lifted_by.CONSTANT_AXES)
    TYPE_NOT_SUMMED = (
        "no sum over the replicas is known for its element type, {dtype}",
        "a sum in float32",
    )
    DIFFERENT_SIZES = ("it mixes variables of different sizes", lifted_by.OWN_GRADIENTS)
