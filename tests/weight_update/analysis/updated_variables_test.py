"""What only an update looks at are its slots; a weight has a version wherever others look at it."""

from __future__ import annotations

import pytest

from tests.graph.text_graph import view_of
from tests.weight_update.analysis import steps
from tests.weight_update.analysis.steps import REDUCED, analysis_of, reasons_of
from tf_wu_shard.graph.op import Value
from tf_wu_shard.weight_update.analysis.types import UpdatedVariable
from tf_wu_shard.weight_update.analysis.updated_variables import look_from_outside

LAYER = "early# = ReadVariableOp(w#) [4] @d#\nlayer# = Tanh(early#) [4] @d#\n"
STEP = "step# = AssignSubVariableOp(w#, sum#) @d# ^early#\n"
MOMENTUM = steps.MOMENTUM.rstrip() + " ^early#\n"


def updated(text: str, outputs: tuple[str, ...] = ("layer0", "layer1")) -> list[UpdatedVariable]:
    """The variables of the one update of a step."""
    (update,) = analysis_of(LAYER + text, outputs=outputs).updates
    return [*update.variables]


def test_the_weight_comes_first_and_what_only_the_body_looks_at_is_a_slot() -> None:
    weight, slot = updated(MOMENTUM)
    assert (weight.key, weight.is_slot, weight.versions) == ("w", False, (1,))
    assert (slot.key, slot.is_slot, slot.versions) == ("m", True, ())
    assert weight.handles == ("w0", "w1") and slot.shape == (4,)


def test_a_slot_that_something_else_looks_at_is_whole() -> None:
    seen = "seen# = ReadVariableOp(m#) [4] @d# ^put#\nshown# = Tanh(seen#) [4] @d#\n"
    _, other = updated(MOMENTUM + seen, ("layer0", "layer1", "shown0", "shown1"))
    assert other.key == "m" and not other.is_slot and other.versions == (1,)


def test_a_look_between_two_writes_is_a_version_of_its_own() -> None:
    text = """
    decayed# = AssignSubVariableOp(w#, early#) @d# ^early#
    between# = ReadVariableOp(w#) [4] @d# ^decayed#
    shown# = Tanh(between#) [4] @d#
    step# = AssignSubVariableOp(w#, sum#) @d# ^between#
    """
    (weight,) = updated(text, ("layer0", "layer1", "shown0", "shown1"))
    assert weight.versions == (1, 2)
    (weight,) = updated(text)  # nobody looks in between
    assert weight.versions == (2,)


@pytest.mark.parametrize(("layer", "read_as"), [("{T=1 DstT=14}", 14), ("{T=1 DstT=1}", 1)])
def test_what_every_look_is_cast_to_at_once_is_what_it_is_read_as(layer: str, read_as: int) -> None:
    text = f"cast# = Cast(early#) {layer} [4] @d#\n"
    (weight,) = updated(text + STEP, ("cast0", "cast1"))
    assert weight.read_as == read_as
    both = updated(text + STEP, ("cast0", "cast1", "layer0", "layer1"))
    assert both[0].read_as == weight.dtype


def test_an_update_of_nothing_that_is_trained_is_none() -> None:
    found = analysis_of(LAYER + STEP, outputs=("layer0", "layer1"), trainable=())
    assert found.updates == () and set(reasons_of(found)) == {"w"}


def test_a_look_from_outside_is_found_under_whatever_name() -> None:
    text = "flat# = Reshape(sum#, key) [4] @d#\nboth# = IdentityN(x#, flat#) [4] [4] @d#\n"
    shown = "shown# = Tanh(both#:1) [4] @d#\n"
    view = view_of(REDUCED + text + shown, outputs=("shown0", "both1:0"))
    found = look_from_outside(view, [Value("sum0")], set())
    assert found is not None and found.where == "shown0"
    assert look_from_outside(view, [Value("sum0")], {"shown0"}) is None
    # Of what an IdentityN passes on, the other is the replica's own.
    assert look_from_outside(view, [Value("sum1")], set()) is None
    returned = view_of(REDUCED + text, outputs=("both0:1",))
    found = look_from_outside(returned, [Value("sum0")], set())
    assert found is not None and found.where == "both0"
