"""Kinds of refusals: branches that apply gradients."""

from __future__ import annotations

from tf_wu_shard.refusals import lifted_by
from tf_wu_shard.refusals.kind import Kind


class Branches(Kind):
    """Why a branch that applies gradients is not written out: it has to stay a branch."""

    def __init__(self, why: str) -> None:
        """Says why."""
        super().__init__(f"its branches are not written out, as {why}", lifted_by.IN_THE_STEP)

    BRANCH_TAKES_VARIABLE_TWICE = (
        "it takes a variable twice, or one that replicas do not share, or one of unknown"
        " element type"
    )
    BRANCH_NEEDS_HANDLE = "{function} is not done with the values of variables"
    BRANCH_NOT_IN_VAIN = "{op_type} is not to run where its branch is not taken"
    BRANCH_MAY_FAIL = "{op_type} of whole numbers may fail where it is not to run"
    BRANCH_SHAPE_UNKNOWN = "the shape of what {op_type} yields is not known when traced"
    BRANCH_YIELDS_DIFFERENT_SHAPES = "its branches yield tensors of different shapes"
    BRANCH_DEFINITION_ONLY = "{function} is known by its definition alone"
    BRANCH_NO_TRUTH_VALUE = "its predicate is no truth value"
    BRANCH_YIELDS_NO_NUMBERS = "it yields a {dtype}"
    BRANCH_FUSED_TWICE = "two fused updates of one variable stand in its branches"
