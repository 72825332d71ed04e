from __future__ import annotations

import tensorflow as tf

from tf_wu_shard.layout import Layout
from tf_wu_shard.storage.replica_views import ReplicaViews

_LAYOUT = Layout((2,), 2, 1)


def _shards(first: float, second: float) -> tuple[tf.Tensor, ...]:
    return tf.constant([first]), tf.constant([second])


def _whole(first: float, second: float) -> tf.Tensor:
    return tf.constant([first, second])


def _after_first_write() -> ReplicaViews:
    """Replica 0 has written [3, 4] over [1, 2]; replica 1 has not written yet."""
    views = ReplicaViews(_LAYOUT)
    views.wrote(0, _whole(3, 4), _shards(1, 2), _shards(3, 4))
    return views


def test_without_writes_everyone_reads_the_shards() -> None:
    views = ReplicaViews(_LAYOUT)
    for replica in (None, 0, 1):
        assert views.read(replica, _shards(1, 2)).numpy().tolist() == [1, 2]


def test_a_replica_reads_what_it_wrote_and_the_next_one_still_the_old_value() -> None:
    views = _after_first_write()
    assert views.read(0, _shards(3, 4)).numpy().tolist() == [3, 4]
    assert views.read(1, _shards(3, 4)).numpy().tolist() == [1, 2]
    assert views.read(None, _shards(3, 4)).numpy().tolist() == [3, 4]


def test_the_first_write_reaches_every_shard_and_the_next_replicas_only_its_own() -> None:
    views = ReplicaViews(_LAYOUT)
    assert list(views.targets(0, _shards(1, 2))) == [0, 1]
    views = _after_first_write()
    assert list(views.targets(0, _shards(3, 4))) == [0, 1]
    assert list(views.targets(1, _shards(3, 4))) == [1]


def test_the_round_ends_when_all_replicas_have_written_equally_often() -> None:
    views = _after_first_write()
    views.wrote(0, _whole(5, 6), _shards(3, 4), _shards(5, 6))
    views.wrote(1, _whole(3, 4), _shards(5, 6), _shards(5, 4))
    assert views.read(1, _shards(5, 4)).numpy().tolist() == [3, 4]
    views.wrote(1, _whole(5, 6), _shards(5, 4), _shards(5, 6))
    for replica in (None, 0, 1):
        assert views.read(replica, _shards(5, 6)).numpy().tolist() == [5, 6]
    assert list(views.targets(1, _shards(5, 6))) == [0, 1]


def test_shards_written_by_someone_else_end_the_round() -> None:
    views = _after_first_write()
    assert views.read(1, _shards(8, 9)).numpy().tolist() == [8, 9]
    assert views.read(0, _shards(8, 9)).numpy().tolist() == [8, 9]


def test_a_write_from_outside_ends_the_round() -> None:
    views = _after_first_write()
    views.close()
    assert views.read(1, _shards(3, 4)).numpy().tolist() == [3, 4]


def test_an_equal_nan_is_no_foreign_write() -> None:
    nan = float("nan")
    views = ReplicaViews(_LAYOUT)
    views.wrote(0, _whole(nan, 4), _shards(1, 2), _shards(nan, 4))
    assert views.read(1, _shards(nan, 4)).numpy().tolist() == [1, 2]
