"""What Grappler may replace by ops that round otherwise stays in its sight, and nothing else."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tests.graph.text_graph import view_of
from tf_wu_shard.graph.builder import KEEP_ORDER, GraphBuilder
from tf_wu_shard.weight_update.rewrite.left_to_grappler import divides_by_root, left_to_grappler

KNOWN = """
zero = Const() {value=0.0} []
one = Const() {value=1.0} []
half = Const() {value=0.5} []
several = Const() {value=2x2} [2,2]
a = Placeholder() [4]
b = Placeholder() [4]
g = Placeholder() [4]
"""


def left(text: str) -> set[str]:
    """Those of the ops of a text that are left to Grappler."""
    view = view_of(KNOWN + text)
    names = [line.partition(" ")[0] for line in text.splitlines() if line]
    return left_to_grappler([names], view.ops)


@pytest.mark.parametrize(
    "text",
    [
        "both = Mul(g, a)\nmoved = AddV2(both, b)\n",
        "both = Mul(g, half)\n",
        "less = Sub(g, half)\n",
        "part = RealDiv(g, a)\n",
        # What is multiplied by it is no scalar that is known.
        "rate = Neg(a)\nboth = Mul(g, rate)\n",
        "first = Sub(g, a)\nsecond = Sub(first, b)\n",
        "first = Mul(g, a)\nsecond = RealDiv(b, a)\nboth = AddV2(first, second)\n",
        "root = Sqrt(g)\nboth = Mul(a, root)\n",
    ],
)
def test_what_has_no_other_form_is_compiled(text: str) -> None:
    assert left(text) == set()


@pytest.mark.parametrize("op_type", ["Mul", "AddV2", "Sub", "RealDiv"])
@pytest.mark.parametrize("neutral", ["zero", "one", "several"])
def test_an_operand_that_may_be_zero_or_one_may_make_an_op_vanish(
    op_type: str, neutral: str
) -> None:
    assert left(f"found = {op_type}(g, {neutral})\n") == {"found"}


def test_a_quotient_by_a_constant_is_a_product_to_others() -> None:
    assert left("inner = RealDiv(g, half)\nouter = Mul(inner, b)\n") == {"inner", "outer"}
    text = "first = RealDiv(g, half)\nsecond = Mul(g, b)\nboth = AddV2(first, second)\n"
    assert left(text) == {"first", "second", "both"}


def test_a_number_that_is_taken_with_another_sign_is_added() -> None:
    assert left("less = Neg(g)\nfound = AddV2(a, less)\n") == {"less", "found"}
    text = "less = Neg(g)\ninner = Sub(a, less)\nouter = AddV2(inner, b)\n"
    assert left(text) == {"less", "inner", "outer"}


def test_what_is_made_of_constants_is_one_of_which_the_number_is_not_seen() -> None:
    assert left("made = Exp(half)\nfound = Mul(g, made)\n") == {"made", "found"}


def test_a_quotient_by_a_constant_becomes_a_product() -> None:
    assert left("found = RealDiv(g, half)\n") == {"found"}
    assert left("found = RealDiv(half, g)\n") == set()


@pytest.mark.parametrize("op_type", ["Mul", "AddV2", "Add", "AddN"])
def test_products_and_sums_in_a_row_are_put_in_another_order(op_type: str) -> None:
    assert left(f"inner = {op_type}(g, a)\nouter = {op_type}(inner, b)\n") == {"inner", "outer"}


@pytest.mark.parametrize("kept", ["inner", "outer"])
def test_sums_that_are_to_keep_their_order_keep_it(kept: str) -> None:
    lines = ("inner = AddV2(g, a)", "outer = AddV2(inner, b)")
    marked = (f"{one} {{{KEEP_ORDER}=1}}" if kept in one[:5] else one for one in lines)
    assert left("\n".join(marked) + "\n") == set()


def test_the_builder_marks_what_is_to_be_added_in_order() -> None:
    builder = GraphBuilder(())
    at = builder.at("", "")
    at.in_order("AddV2", [at.op("Placeholder", [], "term", dtype=1) for _ in range(2)])
    *_, total = builder.nodes
    assert isinstance(total, tf.compat.v1.NodeDef) and total.attr[KEEP_ORDER].b


@pytest.mark.parametrize(
    ("inner", "outer"), [("AddV2", "Sub"), ("Sub", "AddV2"), ("Mul", "RealDiv"), ("Div", "Mul")]
)
def test_constants_of_two_sums_or_products_are_put_together(inner: str, outer: str) -> None:
    assert {"inner", "outer"} <= left(f"inner = {inner}(half, g)\nouter = {outer}(inner, half)\n")


def test_a_sum_and_a_product_do_not_put_their_constants_together() -> None:
    assert left("inner = AddV2(half, g)\nouter = Mul(inner, half)\n") == set()


def test_a_factor_of_all_terms_is_taken_out() -> None:
    text = "first = Mul(g, a)\nsecond = Mul(b, a)\nboth = AddV2(first, second)\n"
    assert left(text) == {"first", "second", "both"}


def test_what_shares_a_replaced_operand_is_named_though_it_was_not_asked_for() -> None:
    view = view_of(KNOWN + "inner = Mul(g, a)\nouter = Mul(inner, b)\n")
    assert left_to_grappler([["outer"]], view.ops) == {"inner", "outer"}


def test_what_a_replaced_op_is_made_of_stays_as_well_and_what_is_made_of_it_does_not() -> None:
    # A compiled size would hide the shape by which Grappler decides; see MinimizeBroadcasts.
    text = """
squared = Square(a)
size = Abs(squared)
inner = Mul(g, b)
outer = Mul(inner, size)
sign = Neg(outer)
"""
    assert left(text) == {"squared", "size", "inner", "outer"}
    # Whichever region it lies in.
    view = view_of(KNOWN + text)
    found = left_to_grappler([["inner", "outer"], ["squared", "size", "sign"]], view.ops)
    assert found == {"squared", "size", "inner", "outer"}


def test_what_computes_the_same_as_an_op_that_stays_stays_as_well() -> None:
    text = """
factor = Mul(half, a)
again = Const() {value=0.5} []
twin = Mul(a, again)
other = Mul(b, g)
both = Mul(factor, g)
moved = AddV2(twin, other)
"""
    assert left(text) == {"factor", "both", "twin"}


def test_a_chain_of_any_length_is_followed() -> None:
    chain = "".join(f"x{i + 1} = Neg(x{i})\n" for i in range(3000))
    text = "x0 = Neg(g)\n" + chain + "inner = Mul(x3000, half)\nouter = Mul(inner, b)\n"
    view = view_of(KNOWN + text)
    assert left_to_grappler([["inner", "outer"]], view.ops) == {"inner", "outer"}
    assert len(left(text)) == 3003


def test_where_a_root_is_divided_by_all_stays() -> None:
    text = "root = Sqrt(g)\npart = RealDiv(a, root)\nfar = Neg(b)\n"
    assert left(text) == {"root", "part", "far"}
    view = view_of(KNOWN + text)
    assert divides_by_root([view.ops["part"]], view.ops)
    assert not divides_by_root([view.ops["root"], view.ops["far"]], view.ops)
