"""Replicas that nobody has started run where they are said to, or the answer says what is wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tensorflow as tf

from tf_wu_shard.errors import OptionError
from tf_wu_shard.estimation.grounds import UNKNOWN, ground_of, is_on_tpus, live_ground, replicas_of
from tf_wu_shard.inspection.one_device.what_if import ReplicasInProcess, ReplicasOnTpu


def test_replicas_share_a_process_unless_a_slice_is_named() -> None:
    assert isinstance(ground_of(8, None, ()), ReplicasInProcess)
    for topology in ("v5e:2x4", UNKNOWN):
        ground = ground_of(8, topology, ())
        assert isinstance(ground, ReplicasOnTpu) and ground.replicas.total == 8


@pytest.mark.parametrize(
    ("replicas", "topology", "words"),
    [
        (1, None, "at least 2, not 1"),
        (0, UNKNOWN, "at least 2, not 0"),
        (4, "v5e:2x4", "v5e:2x4 has 8 replicas, not 4"),
        (8, "v9:2x4", "v9"),
    ],
)
def test_what_cannot_be_is_an_error(replicas: int, topology: str | None, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        ground_of(replicas, topology, ())


def test_a_live_variable_shows_its_replicas(
    strategy_of: Callable[[int], tf.distribute.Strategy],
) -> None:
    with strategy_of(2).scope():
        mirrored = tf.Variable(tf.ones((2,)))
    plain = tf.Variable(tf.ones((2,)))
    assert (replicas_of(mirrored), replicas_of(plain)) == (2, 1)
    assert not is_on_tpus(mirrored) and not is_on_tpus(plain)
    ground = live_ground(mirrored, ())
    assert isinstance(ground, ReplicasInProcess) and ground.replicas.total == 2
