"""What is late of one weight is found in sums of several, and put back there beside the others."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.partial_sums.worker_steps import GROUP, REDUCED, STEP, sparse_parts, worker_step
from tf_wu_shard.dtypes import FLOAT32, INT32
from tf_wu_shard.partial_sums.rounds.late import InRounds, Place, places_of
from tf_wu_shard.partial_sums.steps.sums import sums_of
from tf_wu_shard.storage.late_gradients import LISTS, dense

# These run ops, and devices cannot be divided once TensorFlow has used one.
pytestmark = pytest.mark.usefixtures("logical_cpus")

# A gradient of two weights, one of a weight alone, and the rows of a table with their numbers.
KINDS: list[Any] = [((6,), FLOAT32), ((2, 2), FLOAT32), ((3, 2), FLOAT32), ((3,), INT32)]

ALONE = {dense(0): Place(1)}
FIRST, SECOND = ({dense(0): Place(0, slice(begin, begin + 4), 6)} for begin in (0, 2))
ROWS = {LISTS[0]: Place(2), LISTS[1]: Place(3)}


class Shared:
    """Rounds of which nothing but the sums is there."""

    def __init__(self, carried: Sequence[Any] = ()) -> None:
        self.rounds = types.SimpleNamespace(carried=carried)
        self.kinds = KINDS
        self.settled = 0

    def settle(self) -> None:
        self.settled += 1


def in_rounds(shared: Shared, places: dict[str, Place], shape: Sequence[int] = (2, 2)) -> InRounds:
    own: Any = shared
    return InRounds(own, places, shape)


def carried(shared: Shared) -> list[Any]:
    """What is carried, as lists of numbers."""
    return [one if one is None else one.numpy().tolist() for one in shared.rounds.carried]


def test_before_any_sum_nothing_waits() -> None:
    own = in_rounds(Shared(), ALONE)
    assert own.names == [dense(0)] and own.waiting() == {}


def test_a_gradient_waits_in_its_weights_shape() -> None:
    flat = tf.constant([1.0, 2.0, 3.0, 4.0])
    own = in_rounds(Shared([None, flat, None, None]), ALONE)
    assert own.waiting()[dense(0)].tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_of_a_pack_a_weight_has_its_own_elements() -> None:
    own = in_rounds(Shared([tf.range(6.0), None, None, None]), SECOND)
    assert own.waiting()[dense(0)].tolist() == [[2.0, 3.0], [4.0, 5.0]]


def test_what_is_nothing_but_zeros_does_not_wait() -> None:
    pack = tf.constant([1.0, -0.0, 0.0, 0.0, 0.0, 0.0])
    assert in_rounds(Shared([pack, None, None, None]), SECOND).waiting() == {}
    assert in_rounds(Shared([pack, None, None, None]), FIRST).waiting() != {}


def test_a_part_that_is_not_there_is_left_out() -> None:
    two = {dense(0): Place(1), dense(1): Place(0, slice(0, 4), 6)}
    own = in_rounds(Shared([None, tf.ones([2, 2]), None, None]), two)
    assert [*own.waiting()] == [dense(0)]


def test_rows_wait_as_the_lists_that_they_are() -> None:
    rows, numbers = tf.ones([5, 2]), tf.range(5)
    found = in_rounds(Shared([None, None, rows, numbers]), ROWS, (9, 2)).waiting()
    assert found[LISTS[0]].shape == (5, 2) and found[LISTS[1]].tolist() == [0, 1, 2, 3, 4]


def test_what_is_on_its_way_is_settled_by_the_rounds() -> None:
    shared = Shared()
    in_rounds(shared, ALONE).settle()
    assert shared.settled == 1


def test_a_gradient_takes_the_place_of_the_one_before_and_no_others() -> None:
    shared = Shared([None, tf.ones([2, 2]), None, tf.range(2)])
    in_rounds(shared, ALONE).replace({dense(0): np.array([[5.0, 6.0], [7.0, 8.0]])})
    assert carried(shared) == [None, [[5.0, 6.0], [7.0, 8.0]], None, [0, 1]]
    assert shared.rounds.carried[1].dtype == tf.float32


def test_where_nothing_was_carried_all_other_sums_are_nothing() -> None:
    shared = Shared()
    in_rounds(shared, ALONE).replace({dense(0): np.ones(4)})
    assert carried(shared) == [None, [[1.0, 1.0], [1.0, 1.0]], None, None]


def test_what_is_put_back_is_what_waits() -> None:
    for places in (ALONE, FIRST, SECOND):
        part = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
        own = in_rounds(Shared(), places)
        own.replace({dense(0): part})
        np.testing.assert_array_equal(own.waiting()[dense(0)], part)


def test_once_the_last_part_is_gone_nothing_is_carried() -> None:
    shared = Shared([None, tf.ones([2, 2]), None, None])
    in_rounds(shared, ALONE).replace({})
    assert shared.rounds.carried == ()


def test_in_a_pack_the_other_weights_elements_stay() -> None:
    shared = Shared([tf.range(6.0), None, None, None])
    in_rounds(shared, SECOND).replace({dense(0): np.full((2, 2), 9.0)})
    assert carried(shared)[0] == [0.0, 1.0, 9.0, 9.0, 9.0, 9.0]
    in_rounds(shared, SECOND).replace({})
    assert carried(shared)[0] == [0.0, 1.0, 0.0, 0.0, 0.0, 0.0]


def test_in_a_new_pack_the_other_weights_have_a_zero_that_changes_no_bit() -> None:
    shared = Shared()
    in_rounds(shared, FIRST).replace({dense(0): np.ones((2, 2))})
    pack = shared.rounds.carried[0].numpy()
    assert np.signbit(pack).tolist() == [False] * 4 + [True] * 2


def test_a_pack_of_zeros_is_carried_no_longer() -> None:
    shared = Shared([tf.constant([0.0, 0.0, 1.0, 1.0, 1.0, 1.0]), None, None, tf.range(1)])
    in_rounds(shared, SECOND).replace({})
    assert carried(shared) == [None, None, None, [0]]


def test_what_is_late_may_name_more_rows_than_a_step() -> None:
    shared = Shared()
    own = in_rounds(shared, ROWS, (9, 2))
    own.replace({LISTS[0]: np.ones((5, 2)), LISTS[1]: np.arange(5)})
    rows, numbers = shared.rounds.carried[2:]
    assert (rows.shape, rows.dtype, numbers.dtype) == ((5, 2), tf.float32, tf.int32)


@pytest.mark.parametrize(
    ("places", "part"),
    [
        (ALONE, {dense(0): np.ones((3, 2))}),
        (FIRST, {dense(0): np.ones((3, 2))}),
        (ROWS, {LISTS[0]: np.ones((5, 3)), LISTS[1]: np.arange(5)}),
    ],
    ids=["alone", "in a pack", "rows"],
)
def test_another_shape_is_refused_and_nothing_is_changed(
    places: dict[str, Place], part: dict[str, np.ndarray]
) -> None:
    shared = Shared()
    with pytest.raises(ValueError, match=r"^\(\d, \d\) is not \("):
        in_rounds(shared, places).replace(part)
    assert shared.rounds.carried == ()


def places(text: str, carriers: list[tuple[str, ...]], **keywords: Any) -> Any:
    step = worker_step(text, **keywords)
    shapes = keywords.get("variables", {"w": (4,)})
    for key, shape in shapes.items():
        step.captured.variables[key] = types.SimpleNamespace(shape=tf.TensorShape(shape))
    return places_of(step, sums_of(step), carriers)


def test_a_gradient_alone_is_found_by_what_carries_it() -> None:
    assert places(REDUCED + STEP, [("other",), ("sum0",)]) == {"w": {dense(0): Place(1)}}


def test_a_step_that_sums_nothing_has_no_places() -> None:
    assert places(GROUP, []) == {}


def test_several_gradients_of_a_weight_are_numbered() -> None:
    again = """
    again0 = CollectiveReduceV2(x0, two, key) {merge_op=Add final_op=Id} [4] @d0
    more0 = AssignSubVariableOp(w0, again0) @d0
    """
    found = places(REDUCED + STEP + again, [("again0",), ("sum0",)])
    assert found == {"w": {dense(0): Place(1), dense(1): Place(0)}}


PACK = """
a0 = Placeholder() [4] @d0
b0 = Placeholder() [2,3] @d0
zero = Const() {value=0}
flat0 = Reshape(b0, four) [6] @d0
pack0 = ConcatV2(a0, flat0, zero) [10] @d0
sum0 = CollectiveReduceV2(pack0, two, key) {merge_op=Add final_op=Id} [10] @d0
split0 = SplitV(sum0, two, zero) [4] [6] @d0
whole0 = Reshape(split0:1, four) [2,3] @d0
w_step0 = AssignSubVariableOp(w0, split0) @d0
v_step0 = AssignSubVariableOp(v0, whole0) @d0
"""


def test_gradients_in_a_pack_have_their_elements_one_after_the_other() -> None:
    variables = {"w": (4,), "v": (2, 3)}
    found = places(GROUP + PACK, [("sum0",)], variables=variables, trainable=("w", "v"))
    assert found == {
        "w": {dense(0): Place(0, slice(0, 4), 10)},
        "v": {dense(0): Place(0, slice(4, 10), 10)},
    }


def test_lists_of_rows_stand_behind_all_dense_gradients() -> None:
    rows = """
    v0 = Placeholder() [4] @d0
    r0 = Placeholder() {T=3} [4] @d0
    shape0 = Const() {value=1} @d0
    rows0 = If(v0, v0, r0, shape0) [?] [?] [?] @d0
    more0 = If(v0, v0, r0, shape0) [?] [?] [?] @d0
    nowhere0 = If(v0, v0, r0, shape0) [?] [?] [?] @d0
    put0 = ResourceScatterAdd(t0, rows0:1, rows0) @d0
    also0 = ResourceScatterAdd(u0, more0:1, more0) @d0
    """
    found = places(
        REDUCED + STEP + rows,
        [("sum0",)],
        variables={"w": (4,), "t": (9, 4), "u": (9, 4)},
        trainable=("w", "t", "u"),
        sparse=[*sparse_parts("rows"), *sparse_parts("nowhere"), *sparse_parts("more")],
    )
    assert found == {
        "w": {dense(0): Place(0)},
        "t": {LISTS[0]: Place(1), LISTS[1]: Place(2)},
        # Between them are the lists of what updates no variable that is known.
        "u": {LISTS[0]: Place(5), LISTS[1]: Place(6)},
    }
