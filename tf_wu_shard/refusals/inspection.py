"""Kinds of refusals: steps on one device."""

from __future__ import annotations

from tf_wu_shard.refusals import lifted_by
from tf_wu_shard.refusals.kind import Kind

_ENTERS = "what replicas compute from their own batches enters its update by"


class Inspection(Kind):
    """What a step that was traced on one device does not show of the same step on replicas."""

    INSIDE_OF_BRANCH = (
        "its update runs inside of {op_type}, a branch or a loop",
        lifted_by.IN_THE_STEP,
    )
    TOO_MANY_VARIABLES = (
        "it depends on more than {most} variables of the step",
        lifted_by.OWN_GRADIENTS,
    )
    AMBIGUOUS_GRADIENT = (
        f"{_ENTERS} more than one value: where its gradient would be summed is ambiguous",
        lifted_by.TRACED_FOR_REPLICAS,
    )
    GRADIENT_OF_OTHER_TYPE = (
        f"{_ENTERS} {{value}}: that is of another element type than the weight",
        lifted_by.TRACED_FOR_REPLICAS,
    )
    GRADIENT_OF_NO_ROWS = (
        f"{_ENTERS} {{value}}, of shape {{shape}}: that is no row of {{table}} for each entry",
        lifted_by.TRACED_FOR_REPLICAS,
    )
    GRADIENT_OF_OTHER_SIZE = (
        f"{_ENTERS} {{value}}, of shape {{shape}}: that is no gradient of a weight of shape"
        f" {{weight}}",
        lifted_by.TRACED_FOR_REPLICAS,
    )
    GRADIENT_SHAPE_UNKNOWN = (
        "the shape of its gradient {value} is not known",
        lifted_by.FIXED_SHAPES,
    )
    ROWS_UNKNOWN = (
        "its gradient is sparse, and where its rows come from is unknown",
        lifted_by.DENSE,
    )
    ROWS_OF_TWO_GRADIENTS = (
        "its gradient is sparse, and another's names its rows by {op} too: which entries"
        " are whose is"
        " not known",
        "numbers of rows that are its own gradient's alone",
    )
    DENSE_ON_TPUS = (
        "its gradient is sparse here and would be dense on TPUs: how it is updated then, this step"
        " does not show",
        "a step that was traced for TPUs, in which its gradient is dense",
    )
