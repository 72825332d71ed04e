"""Reductions are found, packed ones taken apart, and every name of a sum is known."""

from __future__ import annotations

from tests.graph.text_graph import view_of
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.dialect import Gathered
from tf_wu_shard.grounds.in_process.recognise import recognise_in_process
from tf_wu_shard.replicas import in_this_process
from tf_wu_shard.step.gradients import SparseParts, gradient_reductions, result_names
from tf_wu_shard.step.reductions import GradientReduction

PACKED = """
axis = Const() {value=0}
size = Const() {value=2}
key = Const() {value=1}
sizes = Const() {value=0}
a# = Mul() [6] @d#
b# = Mul() [4] @d#
pack# = ConcatV2(a#, b#, axis) [10] @d#
sum# = CollectiveReduceV2(pack#, size, key) {merge_op=Add final_op=Id} [10] @d#
split# = SplitV(sum#, sizes, axis) [6] [4] @d#
shape = Const() {value=0}
ra# = Reshape(split#, shape) [2,3] @d#
rb# = Identity(split#:1) [4] @d#
all# = IdentityN(ra#, rb#, a#) [2,3] [4] [6] @d#
"""
OUTPUTS = ["all0:0", "all1:0", "all0:1", "all1:1"]


def reductions(text: str, outputs: list[str]) -> tuple[GraphView, list[tuple[int | None, int]]]:
    """The view and, for each reduction found, its size and divisor."""
    view = view_of(text, outputs=outputs)
    found = gradient_reductions(view, recognise_in_process(view, in_this_process(("d0", "d1")))[0])
    return view, [(r.size, r.divisor) for r in found]


def test_a_packed_reduction_is_one_per_gradient() -> None:
    view = view_of(PACKED, outputs=OUTPUTS)
    found = gradient_reductions(view, recognise_in_process(view, in_this_process(("d0", "d1")))[0])
    assert [(r.key, r.size, r.num_replicas, r.carriers) for r in found] == [
        (0, 6, 2, ("sum0", "sum1")),
        (1, 4, 2, ("sum0", "sum1")),
    ]
    assert found[0].operands == (Value("a0"), Value("a1"))
    assert found[1].results == (Value("split0", 1), Value("split1", 1))


def test_a_reduced_gradient_keeps_its_key_under_every_name() -> None:
    view = view_of(PACKED, outputs=OUTPUTS)
    found = gradient_reductions(view, recognise_in_process(view, in_this_process(("d0", "d1")))[0])
    names = result_names(view, found)
    assert names[Value("ra1")] == names[Value("all1", 0)] == (0, 1)
    assert names[Value("rb0")] == names[Value("all0", 1)] == (1, 0)
    # A raw gradient that travels through the same IdentityN is not a sum.
    assert Value("all0", 2) not in names


def test_a_pack_whose_sum_is_also_read_whole_stays_one_reduction() -> None:
    text = PACKED + "norm# = Square(sum#) [10] @d#\n"
    _, found = reductions(text, [*OUTPUTS, "norm0", "norm1"])
    assert found == [(10, 1)]


def test_a_sum_split_in_another_way_than_it_was_packed_stays_one_reduction() -> None:
    text = PACKED.replace(
        "split# = SplitV(sum#, sizes, axis) [6] [4]", "split# = SplitV(sum#, sizes, axis) [5] [5]"
    )
    _, found = reductions(text, OUTPUTS)
    assert found == [(10, 1)]


def test_a_pack_of_one_gradient_is_that_gradient() -> None:
    text = """
    axis = Const() {value=0}
    size = Const() {value=2}
    key = Const() {value=1}
    a# = Mul() [6] @d#
    pack# = Identity(a#) [6] @d#
    sum# = CollectiveReduceV2(pack#, size, key) {merge_op=Add final_op=Id} [6] @d#
    split# = SplitV(sum#, size, axis) {num_split=1} [6] @d#
    """
    view = view_of(text, outputs=["split0", "split1"])
    (found,) = gradient_reductions(
        view, recognise_in_process(view, in_this_process(("d0", "d1")))[0]
    )
    assert found.operands == (Value("pack0"), Value("pack1"))
    assert found.results == (Value("split0"), Value("split1"))


def test_a_mean_divides_by_the_number_of_replicas() -> None:
    _, found = reductions(PACKED.replace("final_op=Id", "final_op=Div"), OUTPUTS)
    assert [divisor for _, divisor in found] == [2, 2]


def test_a_gradient_of_open_shape_is_a_reduction_of_unknown_size() -> None:
    text = """
    size = Const() {value=2}
    key = Const() {value=1}
    g# = Mul() [?] @d#
    sum# = CollectiveReduceV2(g#, size, key) {merge_op=Add final_op=Id} [?] @d#
    """
    _, found = reductions(text, ["sum0", "sum1"])
    assert found == [(None, 1)]


def test_the_parts_of_a_sparse_gradient_are_those_that_the_same_ops_carry() -> None:
    def reduction(
        key: int, carriers: tuple[str, ...], gathered: Gathered | None
    ) -> GradientReduction:
        return GradientReduction(key, (), (), 0, 1, 1, carriers, gathered)

    found = SparseParts(
        (
            reduction(0, ("one", "lengths"), Gathered.VALUES),
            reduction(1, ("one",), Gathered.ROWS),
            reduction(2, ("two",), Gathered.VALUES),
            reduction(3, ("pack",), None),
            reduction(4, ("pack",), None),
        )
    )
    assert found.with_others({1}) == {0, 1}
    assert found.with_others({2, 3}) == {2, 3}
    assert found.with_others(()) == set()
