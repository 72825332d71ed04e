"""Kinds of refusals: an update, from the gradient to the weight, its ops, rows and matrices."""

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
        "a gradient that the strategy sums in the same step and hands to each replica: by"
        " all_reduce, or reduce_to the variable, where strategy.reduce hands one value to all",
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
    WRITTEN_IN_CALL = (
        "{op_type}, a branch, a loop or a function that the step calls, may write {variable} as"
        " well",
        lifted_by.ONE_PLACE,
    )
    PART_WRITTEN = ("{op_type} writes a part of it", "a write of the whole variable")
    UNORDERED = (
        "nothing orders it after {earlier}, which uses {handle} too",
        "tf.control_dependencies between the two, or a tf.function, which orders them",
    )
    UPDATED_WITH_ANOTHER = (
        "it is updated in shards with another gradient",
        lifted_by.OWN_GRADIENTS,
    )
    FOLLOWS_BESIDE = (
        "{variables}: written with a weight that was just updated, and not shared with it: {reason}"
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


class Rows(Kind):
    """What an update of the rows of a table, by a sparse gradient, does beside that."""

    def __init__(self, says: str, cure: str = lifted_by.DENSE) -> None:
        """See `Kind`."""
        super().__init__(says, cure)

    NO_RULE_ON_ROWS = (
        "no rule for {op_type} on rows of a table",
        f"{lifted_by.OTHER_OP}, or {lifted_by.DENSE}",
    )

    # The gradient and the variables.
    ROWS_OF_DIFFERENT_SHAPES = "it mixes variables of different shapes"
    NO_ROWS = "it has no rows"
    SPARSE_AND_DENSE = "it mixes a sparse and a dense gradient"
    PARTS_NOT_FOLLOWED = "its values or rows were not followed from the gradient"
    SEVERAL_SPARSE_GRADIENTS = (
        "several sparse gradients update it, and their parts are not told apart"
    )
    NOT_THE_TABLES_SHAPE = "the shape of its gradient is not known to be the table's"
    RESHAPED_SPARSE_GRADIENT = "its gradient is given another shape"

    # What is looked up and written.
    ROWS_OF_ANOTHER = "it looks up rows of a variable that the update does not write"
    ROW_NUMBERS_NARROWED = "it narrows the numbers of rows"
    OTHER_ROWS_READ = "it looks up something else than the rows of entries"
    OTHER_LOOK_UP = "it looks up something else than rows of the table"
    OTHER_SEGMENT_SUM = "it adds up something else than the entries of each row"
    NO_TABLE_WRITTEN = "it writes something else than a table of its shape"
    NO_ROW_EACH_WRITTEN = "it writes something else than one row for each entry"
    ROWS_MAY_REPEAT = "the rows that it updates may repeat"
    SCALAR_OF_SPARSE_GRADIENT = "one of its scalars depends on the gradient"

    # Arithmetic on tables and entries.
    TABLE_WITH_ENTRIES = "it mixes a table with entries, or entries with others"
    COMPUTES_WITH_ROW_NUMBERS = "it computes with {what}"
    ROUNDED_OTHERWISE = "{op_type} of some entries may be rounded otherwise than of all"
    ENTRIES_OVER_ENTRIES = "it broadcasts some entries over others"
    BROADCASTS_OVER_ENTRIES = "it broadcasts {shape} over entries"
    BROADCASTS_OVER_TABLE = "it broadcasts over {table} otherwise than by rows"
    RESIZES_ROWS = "it makes {shape} of a table's rows"
    SUMS_ROW_NUMBERS = "it sums {what}"
    AXES_UNKNOWN_ON_ROWS = "the axes of its sum over rows are not known when traced"
    SUMS_EACH_ENTRY = "it sums over each entry alone"
    MEAN_OF_ENTRIES = "it divides by the number of entries"
    TYPE_NOT_SUMMED_ON_ROWS = (
        "no sum over the replicas is known for its element type, {dtype}, on rows of a table"
    )

    # Branches on rows.
    CONDITION_OF_SHARD = "its condition is not the same for all shards"
    NO_LIST_RETURNED = "it does not return the rows of one list of entries"
    COUNTS_ENTRIES = "it looks at how many entries there are"
    SEVERAL_LISTS = "it mixes several lists of entries"
    ORDER_OF_ENTRIES_UNKNOWN = "the order of its entries among all is not known"
    BRANCH_UNKNOWN = "one of its branches is not known"
    BRANCH_HAS_EFFECTS = "one of its branches does {op_type}"
    BRANCH_RESULT_OUTSIDE = "one of its results is the same for all shards"
    ALL_ROWS_IN_BRANCH = "in a branch, it computes with all rows of what is outside"
    SUM_IN_BRANCH = "in a branch, it sums over the rows of several shards"


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
    READS_BY_HANDLE = ("{op_type} takes the handle of {variable}", lifted_by.ITS_VALUE)
    NOT_READ_BY_ALL = (
        "not all replicas read {variable} before its next write",
        "reading its value on every replica",
    )
    READ_FOR_ALL = ("all replicas use what replica 0 reads", lifted_by.ALIKE)
    NOR_ALONE = "nor can one replica do it alone: {why}"
