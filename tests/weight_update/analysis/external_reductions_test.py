"""Sums over a reduced gradient are found wherever elementwise ops carry it, and nowhere else."""

from __future__ import annotations

import pytest

from tests.graph.text_graph import DIALECT, view_of
from tests.weight_update.analysis.steps import REDUCED, SHAPES
from tf_wu_shard.step.gradients import gradient_reductions
from tf_wu_shard.weight_update.analysis.external_reductions import sums_over_gradients
from tf_wu_shard.weight_update.analysis.reduced_graph import ReducedGraph


def sums(text: str, replica: int = 0) -> list[str]:
    """Names of the sums that the gradient of `REDUCED` enters on a replica."""
    outputs = [
        line.partition(" ")[0].replace("#", str(r)) for line in text.splitlines() for r in (0, 1)
    ]
    view = view_of(REDUCED + text, variables=SHAPES, outputs=outputs)
    carried, _ = DIALECT.recognise(view)
    graph = ReducedGraph.of(view, gradient_reductions(view, carried, []), DIALECT.replicas)
    return [op.name for op in sums_over_gradients(graph, [0], replica)]


NORM = "square# = Square(sum#) [4] @d#\nnorm# = Sum(square#, key) [] @d#\n"


@pytest.mark.parametrize("replica", [0, 1])
def test_a_norm_is_found_on_each_replica(replica: int) -> None:
    assert sums(NORM, replica) == [f"norm{replica}"]


def test_sums_stand_in_the_order_of_the_graph() -> None:
    text = "first# = L2Loss(sum#) [] @d#\n" + NORM + "most# = Max(square#, key) [] @d#\n"
    assert sums(text) == ["first0", "norm0", "most0"]


def test_a_gradient_is_followed_through_the_number_that_it_has() -> None:
    text = "both# = IdentityN(x#, sum#) [4] [4] @d#\n"
    assert sums(text + "norm# = L2Loss(both#:1) [] @d#\n") == ["norm0"]
    # The other is the replica's own.
    assert sums(text + "norm# = L2Loss(both#) [] @d#\n") == []


@pytest.mark.parametrize(
    "text",
    [
        # A sum ends the way: what comes behind it is the same everywhere.
        "norm# = L2Loss(sum#) [] @d#\nmore# = Sum(norm#, key) [] @d#\n",
        # An op without a rule ends it as well.
        "norm# = L2Loss(sum#) [] @d#\nsorted# = TopKV2(sum#, size) [4] @d#\n"
        "less# = L2Loss(sorted#) [] @d#\n",
        # It is no sum over the gradient that takes its axes from it.
        "norm# = L2Loss(sum#) [] @d#\nother# = Sum(x#, sum#) [] @d#\n",
    ],
)
def test_the_way_ends_where_the_gradient_is_no_longer_in_shards(text: str) -> None:
    assert sums(text) == ["norm0"]
