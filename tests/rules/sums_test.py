"""A sum over a tensor in shards is in parts, if its axes and its element type are known."""

from __future__ import annotations

from tests.rules.placing import CUT, placed
from tf_wu_shard.dtypes import FLOAT32, INT64
from tf_wu_shard.placement import Combine, Partial, Replicated


def test_what_is_summed_over_shards_is_in_parts() -> None:
    of_rows = Partial((4,), Combine.SUM, (4, 3), (1,), FLOAT32)
    assert placed("Sum", CUT, Replicated((1,)), shape=(4,), axis=-1) == of_rows
    assert placed("L2Loss", CUT, shape=()) == Partial((), Combine.SUM, (4, 3), (0, 1), FLOAT32)
    reason = "the axes of its sum are not known when traced (op)"
    assert placed("Sum", CUT, Replicated((1,)), shape=(4,)) == reason
    reason = "no sum over the replicas is known for its element type, int64 (op)"
    assert placed("Sum", CUT, Replicated((1,)), shape=(4,), axis=1, dtype=INT64) == reason
    reason = "it takes its axes from the values of a sharded tensor (op)"
    assert placed("Mean", CUT, CUT, shape=()) == reason
    unknown = "the shape of its result is not known when the step is traced (op)"
    assert placed("Sum", CUT, Replicated((1,)), shape=None) == unknown
