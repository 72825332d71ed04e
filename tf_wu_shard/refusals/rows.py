"""Kinds of refusals: rows of a table."""

from __future__ import annotations

from tf_wu_shard.refusals import lifted_by
from tf_wu_shard.refusals.kind import Kind


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
