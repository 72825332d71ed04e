"""What is late of a weight, put together from several places, and given back to one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tf_wu_shard import WuShardError
from tf_wu_shard.storage.late_gradients import FIXED_ROWS, LISTS, LateGradients, ReplicasOwn, dense


class _Place:
    """A place where parts wait."""

    def __init__(self, *names: str) -> None:
        self.names: Sequence[str] = names
        self.parts: Any = {}

    def settle(self) -> None: ...

    def waiting(self) -> Any:
        return self.parts

    def replace(self, parts: Any) -> None:
        self.parts = dict(parts)


def _with(*places: _Place) -> LateGradients:
    found = LateGradients("table", (4, 2))
    for number, one in enumerate(places):
        found.attach(str(number), one)
    return found


def test_parts_of_several_functions_are_put_together() -> None:
    first, second = _Place(*LISTS), _Place(*LISTS)
    for number, place in enumerate((first, second)):
        place.parts = {LISTS[0]: np.full((number + 1, 2), 3.0), LISTS[1]: np.arange(number + 1)}
    saved = _with(first, second).serialize()
    third, fourth = _Place(*LISTS), _Place(*LISTS)
    _with(third, fourth).deserialize(saved)
    assert third.parts[LISTS[0]].tolist() == [[3.0, 3.0]] * 3
    assert third.parts[LISTS[1]].tolist() == [0, 0, 1]
    assert fourth.parts == {}


def test_a_table_as_a_whole_and_a_list_of_rows_are_the_same() -> None:
    table = np.array([[0, 0], [1, 2], [0, 0], [0, 3]], np.float32)
    whole, rows = _Place(dense(0)), _Place(*LISTS)
    whole.parts = {dense(0): table}
    _with(rows).deserialize(_with(whole).serialize())
    assert rows.parts[LISTS[1]].tolist() == [1, 3]
    rows.parts = {name: np.concatenate([part, part]) for name, part in rows.parts.items()}
    back = _Place(dense(0))
    _with(back).deserialize(_with(rows).serialize())
    np.testing.assert_array_equal(back.parts[dense(0)], 2 * table)


def test_a_narrow_type_loses_nothing() -> None:
    place = _Place(dense(0))
    place.parts = {dense(0): tf.constant([1.5, -0.0], tf.bfloat16).numpy()}
    other = _Place(dense(0))
    late = LateGradients("weight", (2,))
    late.deserialize(_with(place).serialize())
    late.attach("later", other)
    assert other.parts[dense(0)].tolist() == [1.5, -0.0]


def test_what_was_late_of_another_kind_is_told() -> None:
    place, other = _Place(dense(0)), _Place(FIXED_ROWS)
    place.parts = {dense(0): np.ones(3)}
    saved = _with(place).serialize()
    said = "late, as tensors of its shape; the step that trains it now has rows that are the same"
    with pytest.raises(WuShardError, match=said):
        _with(other).deserialize(saved)
    late = _with()
    late.deserialize(saved)
    with pytest.raises(WuShardError, match=said):
        late.attach("later", other)


class _Own:
    """What replicas keep of a part."""

    def __init__(self, *values: Any) -> None:
        self._values = [np.array(value, np.float32) for value in values]
        self.first: Any = None

    def values(self) -> list[tf.Tensor]:
        return [tf.constant(value) for value in self._values]

    def restart(self, first: Any) -> None:
        self.first = first


@pytest.mark.parametrize(("worker", "takes"), [(None, True), (0, True), (1, False)])
def test_one_worker_of_all_takes_what_is_restored(worker: int | None, takes: bool) -> None:
    own: Any = _Own([0.0], [0.0])
    ReplicasOwn({dense(0): own}, worker).replace({dense(0): np.ones(1)})
    assert (own.first is not None) == takes


def test_no_worker_writes_what_others_have_as_well() -> None:
    own: Any = _Own([1.0], [2.0])
    assert ReplicasOwn({dense(0): own}, None).waiting() == {dense(0): [3.0]}
    with pytest.raises(WuShardError, match="other workers have others"):
        ReplicasOwn({dense(0): own}, 0).waiting()


@pytest.mark.parametrize("damage", [b"", b"PK", b"no file of NumPy's"])
def test_a_damaged_checkpoint_is_told(damage: bytes) -> None:
    with pytest.raises(WuShardError, match="of table as late_gradients is damaged"):
        _with().deserialize(damage)
