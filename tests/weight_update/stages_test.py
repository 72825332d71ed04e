"""The stages in a row say of each step what was made of it, and nothing that was said already."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

from tests.graph.text_graph import DIALECT, view_of
from tests.weight_update.analysis.steps import REDUCED, STEP
from tests.weight_update.rewrite.raw_steps import Copy, dense_step
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.tpu.cluster import Cluster
from tf_wu_shard.preferences import Preferences
from tf_wu_shard.refusals import Topology
from tf_wu_shard.report.published import nothing_sharded
from tf_wu_shard.report.report import ShardedVariable
from tf_wu_shard.step.capture import Captured
from tf_wu_shard.step.step import Step
from tf_wu_shard.storage import captured_slots
from tf_wu_shard.weight_update.nested_updates import NestedUpdates
from tf_wu_shard.weight_update.plan.constraints import StorageConstraints
from tf_wu_shard.weight_update.sharding import plan_sharding
from tf_wu_shard.weight_update.stages import Outcome, Reported, run_stages

ODD = "odd# = Cumsum(sum#) [4] @d#\n" + STEP.format("odd#")
# A function that another report may name writes the weight.
CALL = "c = StatefulPartitionedCall(w0, w1, sum0) {f=&f} [4]\n"
FUNCTIONS = {"f": ("a b x", "p = AssignSubVariableOp(a, x)\nq = AssignSubVariableOp(b, x)", "x")}
OPTIONS = ShardingOptions(min_elements=1)


class Graph:
    """A FuncGraph, as far as the stages ask it."""

    name = "step"
    is_control_flow_graph = False
    outer_graph = None
    captures: tuple[Any, ...] = ()

    def __init__(self, **functions: Any) -> None:
        self._functions = {
            name: SimpleNamespace(_cached_graph=graph) for name, graph in functions.items()
        }

    def get_operation_by_name(self, name: str) -> Any:
        raise KeyError(name)


class Variable:
    """A variable that lives whole."""

    trainable = True


@pytest.fixture(autouse=True)
def _nothing_in_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captured_slots, "slots_in_shards", lambda captured: {})


def view(text: str) -> GraphView:
    return view_of(REDUCED + text, variables={"w": (4,)}, functions=FUNCTIONS)


def run(
    text: str,
    options: ShardingOptions | None = OPTIONS,
    *,
    cluster: Cluster | None = None,
    variables: Mapping[str, Any] | None = None,
    graph: Graph | None = None,
    reported: Reported | None = None,
) -> Outcome:
    """What the stages make of a step."""
    captured = Captured(view(text), dict(variables or {}), cluster)
    dialect: Any = SimpleNamespace(
        preferences=Preferences(1, 1),
        **{name: getattr(DIALECT, name) for name in ("replicas", "uneven", "stacks", "recognise")},
    )
    return run_stages(Step(graph or Graph(), captured, dialect), options, reported or {})


def left(outcome: Outcome) -> dict[str, str]:
    """What its report leaves alone, and why."""
    assert outcome.report is not None
    return {one.name: one.reason for one in outcome.report.left_alone}


def test_a_step_without_the_flag_is_not_looked_at() -> None:
    found = run(ODD, None)
    assert (found.sharding, found.report, found.analysis, found.reports) == (None, None, None, [])
    assert found.view is found.nested.captured.view


def test_an_update_that_cannot_be_shared_is_reported_and_the_graph_stays() -> None:
    found = run(ODD)
    assert left(found) == {"w": "no rule for Cumsum"}
    assert found.result is None and found.view is found.nested.captured.view
    assert found.report is not None and found.report.function == "step"
    # A step that updates nothing has nothing to say.
    quiet = run("norm# = L2Loss(sum#) [] @d#\n")
    assert quiet.report is None and quiet.sharding is not None


def test_what_keeps_a_whole_program_as_it_is_is_said_of_each_weight_if_it_trains_any() -> None:
    refusal = Topology.SEVERAL_CORES_A_REPLICA.at(cores=2)
    cluster = Cluster("program", 2, refusal)
    summing = "all = Const() {value=1x2}\ns = CrossReplicaSum(x0, all) [4]\n"
    assert left(run(summing, cluster=cluster)) == {"w": refusal.reason}
    silent = run(ODD, cluster=cluster)
    assert silent.report is None and silent.sharding is None
    # A variable with a key in each of several programs is named once.
    twice = dict.fromkeys(("w", "again"), Variable())
    both = view_of(REDUCED + summing, variables={"w": (4,), "again": (4,)}, trainable=twice)
    step = Step(Graph(), Captured(both, twice, cluster), DIALECT)
    assert left(run_stages(step, OPTIONS, {})) == {"w": refusal.reason}


def test_an_update_inside_of_a_function_whose_own_report_names_it_is_left_to_that() -> None:
    variable, inner = Variable(), Graph()
    given: dict[str, Any] = {"variables": {"w": variable}, "graph": Graph(f=inner)}
    assert "w" in left(run(CALL, **given))
    known = run(CALL, reported={inner: frozenset({id(variable)})}, **given)
    assert known.report is None
    other = run(CALL, reported={inner: frozenset({id(inner)})}, **given)
    assert "w" in left(other)
    # What the step writes itself as well, it reports.
    both = run(CALL + ODD, reported={inner: frozenset({id(variable)})}, **given)
    assert "w" in left(both)


def test_an_outcome_says_what_is_nested_first_and_names_all_variables_of_its_reports() -> None:
    inner, outer = (
        nothing_sharded(name, Topology.NO_GRADIENT_SUMMED.at(), ("l",)) for name in ("in", "out")
    )
    shared = ShardedVariable("s", (4,), "float32", "flat 4/2", (), bucket=0, padding=0)
    outer = dataclasses.replace(outer, variables=(shared,), left_alone=())
    variables = {key: Variable() for key in ("l", "s", "unnamed")}
    nested = NestedUpdates(Captured(view(""), dict(variables)), reports=(inner,))
    outcome = Outcome(nested, report=outer)
    assert outcome.reports == [inner, outer]
    assert outcome.reported == {id(variables["l"]), id(variables["s"])}
    assert Outcome(nested).reports == [inner]
    # An average is updated together with its weight, which has a line for both.
    update: Any = SimpleNamespace(variables=[SimpleNamespace(key="unnamed")])
    together: Any = SimpleNamespace(updates=[update], untrained=frozenset())
    of_both = dataclasses.replace(outcome, analysis=together)
    assert of_both.reported == {id(variable) for variable in variables.values()}
    # Of what is not trained there is nothing to report, with or without a report of others.
    teacher: Any = SimpleNamespace(updates=[], untrained=frozenset({"unnamed"}))
    alone = Outcome(NestedUpdates(Captured(view(""), dict(variables))), analysis=teacher)
    assert alone.reports == [] and alone.reported == {id(variables["unnamed"])}


def test_the_view_of_an_outcome_is_the_rewritten_graph() -> None:
    def sgd(copy: Copy) -> None:
        copy.write("AssignSub", "w", tf.negative(copy.total), "step")

    step = dense_step(sgd, {"w": (5, 4)})
    sharding = plan_sharding(
        step.analysis, step.emission.dialect, OPTIONS, StorageConstraints()
    ).rewritten(step.view)
    outcome = Outcome(NestedUpdates(Captured(step.view, {})), sharding)
    assert outcome.result is sharding.result is not None
    assert outcome.view is not step.view
    assert "sum0" not in outcome.view.ops and "sum0" in step.view.ops
