"""Kinds of refusals: whole tensors and owners."""

from __future__ import annotations

from tf_wu_shard.refusals import lifted_by
from tf_wu_shard.refusals.kind import Kind


class Matrices(Kind):
    """What keeps whole tensors from being put together, or one replica from doing an update."""

    # Matrix functions, for which every replica has whole tensors, or all by turns.
    WEIGHTS_OF_DIFFERENT_SIZES = (
        "its weights and gradients are of different sizes",
        lifted_by.OWN_GRADIENTS,
    )
    WRITES_OTHER_SIZE = ("it writes what is not of the variable's size", lifted_by.OF_ONE_SHAPE)
    NOT_FOR_ANOTHER = ("no replica can do a {op_type} for another", lifted_by.OTHER_OP)
    WAITS_FOR_WRITES = "a matrix function waits for what is written with its result"
    WAITS_FOR_ITSELF = (
        "a matrix function of it waits, perhaps by way of other updates, for what it yields"
    )
    NOT_EXCHANGED = "no exchange of {dtype} is known"
    NO_TURNS_OF_SEVERAL = (
        "nor do workers of several replicas take turns with whole tensors yet",
        "one replica a worker",
    )
    NOR_WHOLE = "nor can whole tensors be put together for it: {why}"

    # Owners: one replica does the update for all.
    CALL_WRITES = ("each replica runs a {op_type} that writes variables", lifted_by.IN_THE_STEP)
    NOT_READ_BY_ALL = (
        "not all replicas read {variable} before its next write",
        "reading its value on every replica",
    )
    READ_FOR_ALL = ("all replicas use what replica 0 reads", lifted_by.ALIKE)
    NOR_ALONE = "nor can one replica do it alone: {why}"
