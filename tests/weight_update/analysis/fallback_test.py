"""What was refused for want of a rule is followed anew, and built in a way that needs fewer."""

from __future__ import annotations

import dataclasses
from typing import Any

from tests.graph.text_graph import DIALECT, view_of
from tests.weight_update.analysis.steps import MOMENTUM, REDUCED, STEP
from tf_wu_shard.refusals import Matrices, Refusal, Rules, Updates
from tf_wu_shard.step.gradients import gradient_reductions
from tf_wu_shard.weight_update.analysis.fallback import fall_back, still_refused
from tf_wu_shard.weight_update.analysis.reduced_graph import ReducedGraph
from tf_wu_shard.weight_update.analysis.types import RefusedUpdate, UpdatedVariable, WeightUpdate

NO_RULE = Rules.NO_RULE.at("odd0", op_type="Cumsum")
REFUSED = RefusedUpdate("w", (0,), NO_RULE)
ODD = "odd# = Cumsum(sum#) [4] @d#\n"


def update_of(*keys: str) -> WeightUpdate:
    """An update of these variables, of another gradient."""
    variables = tuple(UpdatedVariable(k, (), (4,), 1, is_slot=False) for k in keys)
    return WeightUpdate(variables, (1,), (), ("d0", "d1"))


class Building:
    """Builds nothing, but notes what it is asked for."""

    def __init__(self, refusal: Refusal | None = None) -> None:
        self.outcome: Any = refusal or update_of("built")
        self.unclaimed: set[str] = set()
        self.asked: list[tuple[Any, Any]] = []

    def of(self, unclaimed: set[str]) -> Any:
        self.unclaimed = unclaimed
        return self

    def build(self, keys: Any, variables: Any) -> Any:
        self.asked.append((keys, variables))
        return self.outcome


def graph_of(text: str) -> ReducedGraph:
    shapes = dict.fromkeys(("w", "m"), (4,))
    view = view_of(REDUCED + text, variables=shapes)
    carried, _ = DIALECT.recognise(view)
    return ReducedGraph.of(view, gradient_reductions(view, carried), DIALECT.replicas)


def asked_for(text: str, variable: str = "w") -> list[tuple[Any, Any]]:
    """The gradients and the variables of each update that is to be built."""
    building, refused = Building(), dataclasses.replace(REFUSED, variable=variable)
    found, _ = fall_back(graph_of(text), [], [refused], building.of)
    assert found == [building.outcome] * len(building.asked)
    return building.asked


def test_a_gradient_is_followed_through_an_op_without_a_rule_to_what_is_written() -> None:
    building = Building()
    found, reasons = fall_back(graph_of(ODD + STEP.format("odd#")), [], [REFUSED], building.of)
    assert building.asked == [((0,), ("w",))] and building.unclaimed == {"m"}
    assert found == [building.outcome] and reasons == {"w": None}


def test_it_is_followed_on_from_what_is_read_back_or_was_left_by_the_step_before() -> None:
    assert asked_for(MOMENTUM) == [((0,), ("m", "w"))]
    early = """
    early# = ReadVariableOp(m#) [4] @d#
    put# = AssignAddVariableOp(m#, sum#) @d# ^early#
    """
    assert asked_for(early + STEP.format("early#")) == [((0,), ("m", "w"))]


def test_a_number_or_a_further_reduction_ends_the_way() -> None:
    norm = "norm# = L2Loss(sum#) [] @d#\nlong# = Mul(x#, norm#) [4] @d#\n"
    assert asked_for(norm + STEP.format("long#")) == []
    again = "put# = AssignAddVariableOp(m#, sum#) @d#\nmoved# = ReadVariableOp(m#) [4] @d# ^put#\n"
    again += "two# = CollectiveReduceV2(moved#, size, key) {merge_op=Add final_op=Id} [4] @d#\n"
    # What is written with the read that leads there belongs to a further forward pass as well.
    assert asked_for(again + STEP.format("moved#"), "m") == [((0,), ("m",))]


def test_only_what_rules_alone_stood_in_the_way_of_is_looked_at_again() -> None:
    graph = graph_of(ODD + STEP.format("odd#"))
    returned = dataclasses.replace(REFUSED, refusal=Updates.RETURNED.at("odd0"))
    building = Building()
    assert fall_back(graph, [], [returned], building.of) == ([], {})
    assert building.asked == [] and building.unclaimed == {"m", "w"}
    both = [REFUSED, dataclasses.replace(returned, variable="m")]
    assert fall_back(graph_of(MOMENTUM), [], both, building.of) == ([], {})
    assert building.asked == []


def test_what_is_in_shards_already_is_not_built_and_the_builders_reason_is_kept() -> None:
    graph = graph_of(ODD + STEP.format("odd#"))
    building = Building()
    found, reasons = fall_back(graph, [update_of("w")], [REFUSED], building.of)
    assert (found, building.asked) == ([], [])
    assert reasons == {"w": Updates.UPDATED_WITH_ANOTHER.at("w")}
    feeding = dataclasses.replace(update_of("other"), reductions=(0,))
    assert fall_back(graph, [feeding], [REFUSED], building.of) == ([], {})
    why = Matrices.NOT_FOR_ANOTHER.at("odd0", op_type="Cumsum")
    assert fall_back(graph, [], [REFUSED], Building(why).of) == ([], {"w": why})


def test_what_is_still_refused_says_why_the_second_way_is_closed() -> None:
    other, built = (dataclasses.replace(REFUSED, variable=key) for key in ("other", "built"))
    why = Updates.RETURNED.at("odd0")
    left = still_refused(
        [REFUSED, other, built],
        {"w": why, "built": None},
        lambda second: Matrices.NOR_ALONE.at(why=second.reason),
    )
    both = NO_RULE.beside(Matrices.NOR_ALONE.at(why=why.reason))
    assert left == (dataclasses.replace(REFUSED, refusal=both), other)
