"""The sums of a step, sorted into gradients of weights, sparse gradients and all others."""

from __future__ import annotations

from tests.partial_sums.made_reductions import reduction
from tests.partial_sums.worker_steps import GROUP, REDUCED, STEP, sparse_parts, worker_step
from tf_wu_shard.grounds.dialect import Gathered
from tf_wu_shard.partial_sums.steps.sums import StepSums, sums_of

LOSS = """
l0 = L2Loss(x0) [] @d0
loss0 = CollectiveReduceV2(l0, two, key) {merge_op=Add final_op=Id} [] @d0
"""

ROWS = """
v0 = Square(x0) [4] @d0
r0 = Placeholder() {T=3} [4] @d0
shape0 = Const() {value=1} @d0
rows0 = If(x0, v0, r0, shape0) [?] [?] [?] @d0
put0 = ResourceScatterAdd(t0, rows0:1, rows0) @d0
"""


def names(sums: StepSums) -> tuple[dict[str, list[str]], list[str]]:
    """The ops that carry gradients, by weight, and those that carry the other sums."""
    gradients = {key: [one.carriers[0] for one in own] for key, own in sums.gradients.items()}
    return gradients, [one.carriers[0] for one in sums.others]


def test_a_step_that_sums_nothing_has_no_sums() -> None:
    found = sums_of(worker_step("x0 = Placeholder() [4] @d0"))
    assert (found.gradients, found.entries, found.others) == ({}, [], [])
    assert found.dense == [] and found.of_weights == {}


def test_a_gradient_is_of_the_weight_that_it_updates_and_a_loss_is_of_none() -> None:
    found = sums_of(worker_step(REDUCED + STEP + LOSS, outputs=["loss0"]))
    assert names(found) == ({"w": ["sum0"]}, ["loss0"])
    assert [one.carriers for one in found.dense] == [("sum0",)]


def test_a_weight_may_have_several_gradients() -> None:
    again = """
    sum_again0 = CollectiveReduceV2(x0, two, key) {merge_op=Add final_op=Id} [4] @d0
    again0 = AssignSubVariableOp(w0, sum_again0) @d0
    """
    found = sums_of(worker_step(REDUCED + STEP + again))
    assert names(found) == ({"w": ["sum0", "sum_again0"]}, [])
    assert len(found.dense) == len(found.of_weights["w"]) == 2


def test_a_statistic_that_takes_the_place_of_the_last_one_is_no_gradient() -> None:
    # Variables are trainable where nobody says otherwise.
    found = sums_of(worker_step(REDUCED + "put0 = AssignVariableOp(w0, sum0) @d0\n"))
    assert names(found) == ({}, ["sum0"])


def test_a_scaled_statistic_is_none_either() -> None:
    text = "scaled0 = Mul(sum0, sum0) [4] @d0\nput0 = AssignVariableOp(w0, scaled0) @d0\n"
    assert names(sums_of(worker_step(REDUCED + text))) == ({}, ["sum0"])


def test_a_statistic_of_a_weight_is_none_whatever_replicas_make_it_of() -> None:
    text = """
    read0 = ReadVariableOp(w0) [4] @d0
    own0 = Square(read0) [4] @d0
    mean0 = CollectiveReduceV2(own0, two, key) {merge_op=Add final_op=Id} [4] @d0
    put0 = AssignVariableOp(w0, mean0) @d0
    """
    assert names(sums_of(worker_step(GROUP + text))) == ({}, ["mean0"])


def test_an_assignment_that_goes_on_from_a_variable_takes_a_gradient() -> None:
    for read in ("w0", "m0"):
        text = f"""
        old0 = ReadVariableOp({read}) [4] @d0
        new0 = Sub(old0, sum0) [4] @d0
        put0 = AssignVariableOp(w0, new0) @d0
        """
        step = worker_step(REDUCED + text, variables={"w": (4,), "m": (4,)})
        assert names(sums_of(step)) == ({"w": ["sum0"]}, []), read


def test_an_assignment_of_something_else_makes_a_gradient_no_statistic() -> None:
    text = STEP + "put0 = AssignVariableOp(w0, x0) @d0\n"
    assert names(sums_of(worker_step(REDUCED + text))) == ({"w": ["sum0"]}, [])


def test_a_sum_that_updates_no_trainable_variable_is_no_gradient() -> None:
    step = worker_step(REDUCED + STEP, trainable=())
    assert names(sums_of(step)) == ({}, ["sum0"])


def test_sparse_gradients_are_apart_from_dense_ones() -> None:
    step = worker_step(
        REDUCED + STEP + ROWS,
        variables={"w": (4,), "t": (9, 4)},
        trainable=("w", "t"),
        sparse=sparse_parts("rows"),
    )
    found = sums_of(step)
    assert names(found) == ({"w": ["sum0"]}, [])
    (entries,) = found.entries
    assert (entries.table, entries.key) == ("t", "t")
    assert {one.gathered for one in entries.parts.values()} == {*Gathered}
    assert [one.carriers for one in found.dense] == [("sum0",)]


def test_each_sparse_gradient_of_a_table_has_a_name_of_its_own() -> None:
    both = ROWS + ROWS.replace("rows0", "more0").replace("put0", "also0").split("\n", 4)[4]
    step = worker_step(
        REDUCED + both,
        variables={"t": (9, 4)},
        trainable=("t",),
        sparse=[*sparse_parts("rows"), *sparse_parts("more")],
    )
    found = sums_of(step)
    assert {*found.of_weights} == {"t, entries 0", "t, entries 1"}
    assert all(len(parts) == 3 for parts in found.of_weights.values())


def test_dense_gradients_stand_in_the_order_of_their_weights() -> None:
    one, two, three = (reduction(n, f"g{n}", f"s{n}", f"s{n}") for n in range(3))
    sums = StepSums({"b": [two, three], "a": [one]}, [], [])
    assert sums.dense == [two, three, one]
    assert sums.of_weights == {"b": [two, three], "a": [one]}
