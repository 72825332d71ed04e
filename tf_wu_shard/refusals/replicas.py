"""Kinds of refusals: replicas that differ."""

from __future__ import annotations

from tf_wu_shard.refusals import lifted_by
from tf_wu_shard.refusals.kind import Kind


class Replicas(Kind):
    """How the replicas' copies of one update differ, or may."""

    NOT_MIRRORED = (
        "it is not a mirrored variable with a component on every replica",
        lifted_by.MIRRORED,
    )
    NOT_TOUCHED = ("the step does not touch it on replica {replica}", lifted_by.ALIKE)
    WRITTEN_MORE_OFTEN = (
        "replica {replica} writes it another number of times than replica 0",
        lifted_by.ALIKE,
    )
    TWO_OPS_FOR_ONE = (
        "replica {replica} has both {other} and this op for {first} alone",
        lifted_by.ALIKE,
    )
    OTHER_VALUES = ("it takes other values on replica {replica} than on replica 0", lifted_by.ALIKE)
    OTHER_GRADIENTS = ("replicas 0 and {replica} use different gradients", lifted_by.ALIKE)
    OTHER_SHAPES = ("replicas 0 and {replica} use a gradient in different shapes", lifted_by.ALIKE)
    # Slots that are made inside of the step begin otherwise on the first replica than on others.
    OTHER_OP = (
        "replica {replica} has a {op_type} where replica 0 has a {first_type}, {first}",
        f"{lifted_by.ALIKE}; if the step itself makes its slots, {lifted_by.BUILT_BEFORE}",
    )
    OTHER_ATTRIBUTES = ("it differs from replica 0's {first}", lifted_by.ALIKE)
    OTHER_VARIABLES = ("replicas 0 and {replica} use different variables", lifted_by.MIRRORED)
    READ_AFTER_OTHER_WRITES = (
        "it reads its variable after other writes than on replica 0",
        lifted_by.ALIKE,
    )
    INPUT_OF_ONE_REPLICA = ("replica {replica} alone has it as an input", lifted_by.ALIKE)
    INPUT_OF_EACH_REPLICA = ("it is an input of each replica alone", lifted_by.SAME_ON_ALL)
    OWN_VALUE = ("each replica keeps its own value of {variable}", lifted_by.MIRRORED)
    OWN_ARGUMENT = ("it may be another value on each replica", lifted_by.SAME_ON_ALL)
    OWN_RESULT = ("the result of {op_type} differs between replicas", lifted_by.SAME_ON_ALL)
    OWN_RUN = ("each replica runs a {op_type} of its own", lifted_by.SAME_ON_ALL)
    OUTSIDE_COMPILATION = (
        "it runs outside of the TPU program (outside compilation)",
        "an update inside of the TPU program",
    )
