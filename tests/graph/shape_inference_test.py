"""Shapes follow from other shapes and from vectors of sizes, also where a batch is open."""

from __future__ import annotations

import pytest

from tests.graph.text_graph import view_of
from tf_wu_shard.graph.op import Value

# Keras' Dense on a tensor of rank 3 whose batch is open: the data as a matrix, and the gradient.
TENSORDOT = """
data = Placeholder() [-1,12,64]
free = Const() {value=0}
axis = Const() {value=0}
two = Const() {value=2}
shape = Shape(data)
batch = GatherV2(shape, free, axis) []
inner = GatherV2(shape, two, axis) []
stack = Pack(batch, inner) {axis=0}
matrix = Reshape(data, stack) [-1,-1]
dy = Placeholder() [-1,128]
gradient = MatMul(matrix, dy) {transpose_a=1} [-1,128]
"""


def test_a_gradient_whose_batch_is_open_has_the_shape_of_its_kernel() -> None:
    view = view_of(TENSORDOT)
    assert view.shape(Value("matrix")) is None
    assert view.shape(Value("gradient")) == (64, 128)


def test_what_depends_on_the_batch_stays_open() -> None:
    view = view_of(TENSORDOT + "product = Mul(matrix, matrix)\ntotal = Size(data) []\n")
    assert view.shape(Value("product")) is None
    assert view.stated(Value("data")) == (None, 12, 64)


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("y = Neg(x) [?]", (2, 3)),
        ("y = AddV2(x, row) [?]", (2, 3)),
        ("y = AddV2(row, wild) [?]", None),
        ("y = AddN(wild, x) [?]", (2, 3)),
        ("y = IdentityN(row, x) [3] [?]\nz = Neg(y:1) [?]", (2, 3)),
        ("y = ZerosLike(x) [?]\nz = Select(x, wild, y) [?]", (2, 3)),
        ("s = Shape(x) [2]\ny = Reshape(wild, s) [?]", (2, 3)),
        ("s = Shape(x) [2]\ny = Fill(s, one) [?]", (2, 3)),
        ("s = Shape(x) [2]\ny = BroadcastTo(wild, s) [?]", (2, 3)),
        ("s = Shape(x) [2]\ny = StridedSliceGrad(s, one, one, one, row) [?]", (2, 3)),
        ("c = Size(x) []\ns = Pack(c) {axis=0} [1]\ny = Reshape(wild, s) [?]", (6,)),
        ("s = Shape(x) [2]\np = Prod(s, zero) []\nv = Pack(p, one)\ny = Fill(v, one)", (6, 1)),
        ("s = Shape(x) [2]\nl = ConcatV2(s, v1, zero) [3]\ny = Fill(l, one)", (2, 3, 4)),
        ("c = Mul(one, four) []\ns = Pack(c, c)\ny = Fill(s, one)", (4, 4)),
        ("y = Transpose(x, one)", None),
        ("y = Sum(x, one) [?]", (2,)),
        ("y = Mean(x, one) {keep_dims=1} [?]", (2, 1)),
        ("y = ExpandDims(x, one)", (2, 1, 3)),
        ("y = ConcatV2(x, x, zero) [?]", (4, 3)),
        ("y = ConcatV2(x, wild, zero) [?]", None),
        ("y = BiasAddGrad(x) {data_format=NHWC}", (3,)),
        ("y = BiasAddGrad(image) {data_format=NCHW}", (8,)),
        ("y = BatchMatMulV2(image, image) {adj_y=1}", (5, 8, 7, 7)),
        ("y = UnsortedSegmentSum(image, x, four)", (4, 7, 7)),
        ("y = Einsum(x, row3) {equation=ab,b->a}", (2,)),
        ("y = Einsum(x, x) {equation=ab,cb->ac}", (2, 2)),
        ("y = Einsum(x, x) {equation=...b,cb->...c}", None),
        ("y = L2Loss(wild)", ()),
        ("y = Pack(x, wild) {axis=0}", (2, 2, 3)),
        ("y = Where(x)", None),
    ],
)
def test_a_result_has_the_shape_that_its_operands_give_it(
    text: str, shape: tuple[int, ...] | None
) -> None:
    given = """
    x = Placeholder() [2,3]
    row = Placeholder() [3]
    row3 = Placeholder() [3]
    image = Placeholder() [5,8,7,7]
    wild = Placeholder() [?]
    zero = Const() {value=0} []
    one = Const() {value=1} []
    four = Const() {value=4} []
    v1 = Pack(four) {axis=0} [1]
    """
    view = view_of(given + text)
    last = text.splitlines()[-1].partition(" ")[0]
    assert view.shape(Value(last)) == shape


def test_floating_constants_are_no_sizes() -> None:
    text = "half = Const() {value=2.0} []\ncast = Cast(half) []\ns = Pack(cast) {axis=0} [1]\n"
    view = view_of(text + "y = Fill(s, half)\n")
    assert view.shape(Value("y")) is None


def test_a_deep_graph_is_followed_without_recursion() -> None:
    lines = ["x0 = Placeholder() [4]", *(f"x{i + 1} = Neg(x{i}) [?]" for i in range(5000))]
    assert view_of("\n".join(lines)).shape(Value("x5000")) == (4,)


def test_given_shapes_tell_what_follows_from_them() -> None:
    view = view_of("g = Placeholder() [?]\ny = Neg(g) [?]\ns = Shape(g)\nz = Reshape(y, s)")
    assert view.shape(Value("z")) is None
    known = view.with_shapes({Value("g"): (2, 5)})
    assert known.shape(Value("z")) == known.shape(Value("y")) == (2, 5)
    assert view.shape(Value("z")) is None
