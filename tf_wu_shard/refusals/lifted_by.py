"""What lifts a refusal, in words that more than one kind says; each reads after "lifted by"."""

from __future__ import annotations

ALIKE = "an update that every replica does alike, with ops of the same kind in the same order"
ALL_REPLICAS = "a sum over all replicas of the step"
BUILT_BEFORE = "optimizer.build(model.trainable_variables) before the first step"
CONSTANT_AXES = "axes that are constants"
DENSE = "a dense gradient, or an optimizer whose update of single rows is known"
FEWER_REPLICAS = "fewer replicas: a shard is a tile at least"
FIXED_SHAPES = "shapes that are fixed when the step is traced"
IN_THE_STEP = "an update outside of branches, loops and functions that the step calls"
ITS_VALUE = "a read of the variable's value, given to that op instead"
MIRRORED = "one mirrored variable for all replicas, made in the strategy's scope"
NOT_LOOKED_INTO = "a step that returns and reads nothing of the update but its variables"
OF_ONE_SHAPE = "an update whose tensors all have the variable's shape, or are single numbers"
ONE_PLACE = (
    "all updates in one place: a loop takes the first step, too, where what it returns has a value"
    " before it, such as tf.zeros"
)
ONE_VALUE = (
    "one value on all replicas before the step is traced, as variable.assign(variable.numpy())"
    " gives them"
)
OTHER_OP = "an update without {op_type}, or a rule for this op"
OWN_GRADIENTS = "an update of each weight from its own gradient alone"
SAME_ON_ALL = (
    "an update that is the same on every replica: of summed gradients, and without random numbers"
)
TRACED_FOR_REPLICAS = "a step that was traced for replicas, in which sums are marked"
