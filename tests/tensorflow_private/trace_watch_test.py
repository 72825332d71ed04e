"""Every trace is seen while it is watched, and none afterwards."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from tf_wu_shard.tensorflow_private.trace_watch import watching


def trace() -> None:
    tf.function(lambda: tf.constant(1), autograph=False).get_concrete_function()


def test_a_trace_is_seen_until_the_block_ends() -> None:
    seen: list[Any] = []
    with watching(seen.append):
        trace()
        assert len(seen) == 1 and seen[0].outputs
    trace()
    assert len(seen) == 1


def test_what_the_watcher_raises_leaves_the_trace_and_ends_the_watch() -> None:
    def stop(graph: Any) -> None:
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"), watching(stop):
        trace()
    trace()
