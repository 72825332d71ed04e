"""Kinds of refusals: from the gradient to the weight."""

from __future__ import annotations

from tf_wu_shard.refusals import lifted_by
from tf_wu_shard.refusals.kind import Kind


class Updates(Kind):
    """What is no update of a weight from its own gradient, or none that can be followed."""

    # On the way from the gradient to the variables.
    GRADIENT_SHAPE_OPEN = (
        "the shape of its gradient is known only when the step runs, and what it updates"
        " does not tell"
        " it: it goes through an op that may change it, or to variables of different shapes",
        lifted_by.FIXED_SHAPES,
    )
    GRADIENT_OF_LARGER = (
        "updates of larger variables use its gradient too, and need all of it on every replica"
    )
    OTHER_OPERAND = (
        "its gradient enters {op_type} as operand {slot}, where an update has something else",
        lifted_by.OTHER_OP,
    )
    GRADIENT_RETURNED = (
        "the step returns a value computed from its gradient",
        lifted_by.NOT_LOOKED_INTO,
    )
    NOT_SUMMED = (
        "{op_type} writes it from no gradient known to be summed over replicas",
        lifted_by.SUMMED,
    )
    VARIABLE_SHAPE_OPEN = (
        "its own shape is not fixed, so that nothing tells how to cut it",
        "a variable of a fixed shape",
    )
    INSIDE_OF_CALL = (
        "its update runs inside of {op_type}, a branch, a loop or a function that the step"
        " calls, and"
        " no gradient reduction known here is in there with it",
        lifted_by.IN_THE_STEP,
    )

    # Who uses the variables.
    HANDLE_TAKEN = (
        "{op_type} takes the handle of {variable} and may write it",
        lifted_by.ITS_VALUE,
    )
    UNORDERED = (
        "nothing orders it after {earlier}, which uses {handle} too",
        "tf.control_dependencies between the two, or a tf.function, which orders them",
    )
    UPDATED_WITH_ANOTHER = (
        "it is updated in shards with another gradient",
        lifted_by.OWN_GRADIENTS,
    )
    NOT_TRAINABLE = "its update reaches no trainable variable"
    READ_BEFORE_BRANCH = (
        "it reads {variable} between a write and a branch that works on it",
        "one update of it in each step",
    )
    BRANCH_TAKES_MORE = ("{op_type} takes {variable} with it", lifted_by.OWN_GRADIENTS)
    BRANCH_WORKS_ON_IT = ("{op_type} also works on what it updates", lifted_by.IN_THE_STEP)
    RETURNED = ("the step returns a value of the update", lifted_by.NOT_LOOKED_INTO)
    LOOKED_AT = ("{op_type} also looks at a value of the update", lifted_by.NOT_LOOKED_INTO)

    # What the update computes.
    OPERAND_SHAPE_UNKNOWN = (
        "the shape of its result is not known when traced",
        lifted_by.FIXED_SHAPES,
    )
    KEPT_APART = ("it mixes gradients whose updates are kept apart", lifted_by.OWN_GRADIENTS)
    WRITES_SOME_ROWS = (
        "{op_type} writes some rows of what a dense gradient updates",
        "an update of the whole variable, or a sparse gradient",
    )
    ALSO_WRITES = (
        "{op_type} also updates a variable that no gradient reaches",
        lifted_by.OWN_GRADIENTS,
    )
    NO_SCALAR = ("operand {slot} of {op_type} is not a scalar", "a scalar in its place")
    WRITES_OTHER_SHAPE = (
        "it writes a value of shape {shape}, not the variable's",
        lifted_by.OF_ONE_SHAPE,
    )
