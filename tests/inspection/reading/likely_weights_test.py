"""Weights are told from slots by how what they hold enters their own updates."""

from __future__ import annotations

from tests.graph.text_graph import view_of
from tf_wu_shard.inspection.reading.likely_weights import likely_weights

# A scale and a bias, which enter by arithmetic, the second behind a layer of no weights, and the
# momentum of the scale.
STEP = """
x = Placeholder() [4]
scale = ReadVariableOp(g0) [4]
bias = ReadVariableOp(b0) [4]
hidden = Mul(x, scale) [4]
out = Add(hidden, bias) [4]
loss = Sum(out, axis) []
slope = Mul(out, loss) [4]
old = ReadVariableOp(m0) [4]
m = Add(old, slope) [4]
put = AssignVariableOp(m0, m) ^old
new = ReadVariableOp(m0) [4] ^put
step = AssignSubVariableOp(g0, new) ^scale
back = AssignSubVariableOp(b0, slope) ^bias
"""


def found(more: str = "", **variables: tuple[int, ...]) -> set[str]:
    shapes = {"g": (4,), "b": (4,), "m": (4,)} | variables
    return likely_weights(view_of("axis = Const() [1]\n" + STEP + more, variables=shapes))


def test_what_enters_its_own_update_through_a_loss_is_a_weight_and_its_momentum_none() -> None:
    assert found() == {"g0", "b0"}


def test_what_a_matrix_function_makes_of_a_momentum_enters_the_weight_alone() -> None:
    text = """
    taken = ReadVariableOp(w0) [4,4]
    layer = MatMul(x, taken) [4]
    square = Reshape(layer, axis) [4,4]
    kept = ReadVariableOp(k0) [4,4]
    next = Add(kept, square) [4,4]
    save = AssignVariableOp(k0, next) ^kept
    turned = MatMul(next, next) [4,4]
    move = AssignSubVariableOp(w0, turned) ^taken
    """
    assert found(text, w=(4, 4), k=(4, 4)) == {"g0", "b0", "w0"}


def test_averages_and_single_numbers_are_no_weights() -> None:
    text = """
    mean = ReadVariableOp(a0) [4]
    moved = Add(mean, hidden) [4]
    average = AssignVariableOp(a0, moved) ^mean
    rate = ReadVariableOp(s0) []
    scaled = Mul(loss, rate) []
    total = Sum(scaled, axis) []
    adjust = AssignVariableOp(s0, total) ^rate
    """
    assert found(text, a=(4,), s=()) == {"g0", "b0"}


def test_a_fused_updates_first_variable_is_one() -> None:
    text = "one = Const() []\nfused = ResourceApplyMomentum(w0, k0, one, slope, one)"
    assert found(text, w=(4,), k=(4,)) == {"g0", "b0", "w0"}
