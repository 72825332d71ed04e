"""What lifts a refusal, in words that more than one of them says; each reads after "lifted by".

A refusal carries its cure from where it is made to whoever shows it. What stands in one place only
is written there.
"""

from __future__ import annotations

ALL_REPLICAS = "a sum over all replicas of the step"
ALIKE = "an update that every replica does alike, with ops of the same kind in the same order"
BUILT_BEFORE = "optimizer.build(model.trainable_variables) before the first step"
DENSE = "a dense gradient, or an optimizer whose update of single rows is known"
FIXED_SHAPES = "shapes that are fixed when the step is traced"
IN_THE_STEP = "an update outside of branches, loops and functions that the step calls"
MIRRORED = "one mirrored variable for all replicas, made in the strategy's scope"
ITS_VALUE = "a read of the variable's value, given to that op instead"
NOT_LOOKED_INTO = "a step that returns and reads nothing of the update but its variables"
OF_ONE_SHAPE = "an update whose tensors all have the variable's shape, or are single numbers"
OWN_GRADIENTS = "an update of each weight from its own gradient alone"
SAME_ON_ALL = "an update that is the same on every replica, such as one without random numbers"
SUMMED = "a gradient that the strategy sums over its replicas, in the same step as the update"
SMALLER_LIMIT = "a lower min_elements; sharing so little costs more than it saves"
EVEN_SMALLER_LIMIT = (
    "fewer replicas, or a lower min_elements: then part of what they exchange is padding"
)
TRACED_FIRST = "tracing the step before whatever else uses the variable"


def other_op(op_type: str) -> str:
    """What lifts the refusal of an op that no table of rules names.

    Args:
        op_type: Its type.
    """
    return f"an update without {op_type}, or a rule for this op"
