"""A step of one device is read as if N replicas ran it, each gradient summed where it enters."""

from __future__ import annotations

from tests.graph.text_graph import view_of
from tf_wu_shard import refusals
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.dialect import CarriedReduction, CarriedSlices, Gathered
from tf_wu_shard.grounds.tpu.torus import one_group
from tf_wu_shard.inspection.one_device.what_if import (
    ReplicasInProcess,
    ReplicasOnTpu,
    entering_gradients,
)


def step(text: str = "step = AssignSubVariableOp(w0, g)") -> GraphView:
    graph = f"x = Placeholder() [4]\ng = Square(x) [4]\n{text}"
    return view_of(graph, replicas=1, variables={"w": (4,)}).with_inputs(["x"], {})


def test_a_gradient_is_its_own_sum() -> None:
    for ground in (ReplicasInProcess(8), ReplicasOnTpu(one_group(8))):
        assert ground.replicas.total == 8
        ((found,), refused) = ground.recognise(step())
        assert found.operands == found.results == (Value("g"),) and refused == []


def test_what_is_summed_may_be_said_instead() -> None:
    said = CarriedReduction((Value("x"),), (Value("x"),), 1, ("x",))
    for ground in (ReplicasInProcess(8, [said]), ReplicasOnTpu(one_group(8), [said])):
        assert ground.recognise(step()) == ([said], [])


def test_a_step_without_a_place_for_a_sum_says_why() -> None:
    twice = "y = RandomUniform() [4]\none = AssignSubVariableOp(w0, g)\n"
    carried, refused = entering_gradients(step(twice + "other = AssignAddVariableOp(w0, y)"))
    assert carried == [] and [r.kind for r in refused] == [refusals.Inspection.AMBIGUOUS_GRADIENT]


def test_tpus_refuse_types_that_they_do_not_reduce_to_shards() -> None:
    view = view_of("x = Placeholder() {T=2 dtype=2} [4]\ng = Square(x) {T=2} [4]", replicas=1)
    gradient = CarriedReduction((Value("g"),), (Value("g"),), 1, ("g",))
    found, refused = ReplicasOnTpu(one_group(8), [gradient]).recognise(view)
    assert found == [] and [r.kind for r in refused] == [refusals.Topology.NOT_SCATTERED]
    assert ReplicasInProcess(8, [gradient]).recognise(view) == ([gradient], [])


def test_of_a_sparse_gradient_the_values_decide_and_the_rows_go_with_them() -> None:
    view = view_of(
        "rows = Placeholder() {T=3 dtype=3} [3]\nvalues = Placeholder() [3,2]\n", replicas=1
    )
    parts = [
        CarriedSlices((Value(n),), (Value(n),), 1, ("rows",), kind, (0,))
        for n, kind in (("values", Gathered.VALUES), ("rows", Gathered.ROWS))
    ]
    assert ReplicasOnTpu(one_group(8), parts).recognise(view) == (parts, [])
