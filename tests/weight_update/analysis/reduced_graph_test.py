"""A reduced graph knows the handles of mirrored variables, and what proves copies to be alike."""

from __future__ import annotations

import dataclasses

from tests.graph.text_graph import DIALECT, view_of
from tests.weight_update.analysis.steps import REDUCED
from tf_wu_shard.graph.view import VariableRef
from tf_wu_shard.replicas import in_this_process, of_one_program
from tf_wu_shard.step.gradients import gradient_reductions
from tf_wu_shard.step.replica_matching import ReplicaMatcher
from tf_wu_shard.step.single_program import SingleProgram
from tf_wu_shard.weight_update.analysis.reduced_graph import ReducedGraph

REF = VariableRef("own", 0, 2, (4,), 1, True, "d0")


def test_handles_are_those_of_mirrored_variables_of_all_replicas_and_of_known_shape() -> None:
    others = {
        "unmirrored": dataclasses.replace(REF, key="unmirrored", mirrored=False),
        "single": dataclasses.replace(REF, key="single", num_replicas=1),
        "open": dataclasses.replace(REF, key="open", shape=None),
    }
    view = view_of(REDUCED, variables={"w": (4,)}, refs=others)
    graph = ReducedGraph.of(view, (), in_this_process(("d0", "d1")))
    assert graph.handles == {"w": {0: "w0", 1: "w1"}}
    assert graph.devices == ("d0", "d1")


def test_every_name_of_a_reduced_gradient_is_known() -> None:
    view = view_of(REDUCED + "flat# = Reshape(sum#, key) [4] @d#\n", outputs=("flat0", "flat1"))
    carried, _ = DIALECT.recognise(view)
    graph = ReducedGraph.of(view, gradient_reductions(view, carried, []), DIALECT.replicas)
    assert {value.op for value in graph.names.of(0, 1)} == {"sum1", "flat1"}


def test_copies_are_matched_with_each_other_and_one_program_with_itself() -> None:
    view = view_of(REDUCED)
    copies = ReducedGraph.of(view, (), in_this_process(("d0", "d1"))).matcher()
    assert type(copies) is ReplicaMatcher
    assert type(ReducedGraph.of(view, (), of_one_program(2)).matcher()) is SingleProgram
