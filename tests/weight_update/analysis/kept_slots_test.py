"""What a step keeps for a weight is seen by data flow, and counted once."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.graph.text_graph import view_of
from tf_wu_shard import refusals
from tf_wu_shard.weight_update.analysis.kept_slots import KeptSlots, kept_slots, with_variables
from tf_wu_shard.weight_update.analysis.types import RefusedUpdate

GRAPH = """
g = Placeholder() [4]
old_m = ReadVariableOp(m0) [4]
new_m = AddV2(old_m, g) [4]
put_m = AssignVariableOp(m0, new_m) [] ^old_m
odd = TopKV2(new_m, g) [4]
step = AssignSubVariableOp(w0, odd) []
"""
SHAPES = {"w": (4,), "m": (4,), "b": (4,), "n": (1,)}


def kept(
    text: str,
    weights: tuple[str, ...] = ("w",),
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    trainable: tuple[str, ...] = ("w", "b"),
) -> dict[str, KeptSlots]:
    """What is kept for weights of a step on one device."""
    view = view_of(text, replicas=1, variables=shapes or SHAPES, trainable=trainable)
    return kept_slots(view, weights)


def test_a_slot_is_seen_through_ops_that_no_rule_knows() -> None:
    assert kept(GRAPH) == {"w": KeptSlots(("m",), are_all=True)}


def test_a_slot_that_is_written_with_another_is_kept_too() -> None:
    text = GRAPH.replace("AddV2(old_m, g)", "AddV2(old_m, old_b)")
    text = "old_b = ReadVariableOp(b0) [4]\nput_b = AssignAddVariableOp(b0, g) [] ^old_b\n" + text
    text = "g = Placeholder() [4]\n" + text.replace("\ng = Placeholder() [4]\n", "\n")
    assert kept(text, trainable=("w",)) == {"w": KeptSlots(("b", "m"), are_all=True)}


def test_what_two_weights_depend_on_is_neithers() -> None:
    text = GRAPH + "step_b = AssignSubVariableOp(b0, odd) []\n"
    found = kept(text, ("w", "b"))
    assert found == dict.fromkeys(("w", "b"), KeptSlots((), are_all=False))


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((1,), KeptSlots((), are_all=True)), ((2, 2), KeptSlots((), are_all=False))],
    ids=("counts steps", "another shape"),
)
def test_what_has_another_shape_is_no_slot(shape: tuple[int, ...], expected: KeptSlots) -> None:
    assert kept(GRAPH, shapes={"w": (4,), "m": shape}) == {"w": expected}


def test_where_something_may_write_unseen_not_all_is_known() -> None:
    text = GRAPH + "call = StatefulPartitionedCall(m0) {f=&other} []\n"
    assert kept(text) == {"w": KeptSlots(("m",), are_all=False)}


def test_of_a_weight_that_nothing_writes_nothing_is_known() -> None:
    assert kept(GRAPH, ("b", "unheard_of")) == {"b": KeptSlots((), are_all=False)}


def test_a_refused_update_is_told_what_it_would_have_updated() -> None:
    view = view_of(GRAPH, replicas=1, variables=SHAPES)
    refused = RefusedUpdate("w", (0,), refusals.Updates.RETURNED.at("odd"))
    (found,) = with_variables(view, (), (refused,))
    assert [(v.key, v.shape, v.is_slot) for v in found.variables] == [
        ("w", (4,), False),
        ("m", (4,), True),
    ]
    # What is made anew of another one, and not of what it held, has no slots.
    untrained = RefusedUpdate("w", (0,), refusals.Updates.NOT_TRAINABLE.at("odd"))
    for text, count in ((GRAPH, 2), (GRAPH.replace("AssignSub", "Assign"), 1)):
        view = view_of(text, replicas=1, variables=SHAPES, trainable=())
        (found,) = with_variables(view, (), (untrained,))
        assert len(found.variables) == count
    view = view_of(GRAPH, replicas=1, variables=SHAPES)
    # A second one has no more of what the first was counted with.
    _, second = with_variables(view, (), (refused, refused))
    assert second.variables == ()
    assert with_variables(view, (), ()) == ()
