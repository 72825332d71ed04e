"""The rounds in which replicas access a slot whose shards they share.

On shards a read on one replica also sees what the others write, so accesses are put in step: all
reads before the i-th writes, then the i-th writes.
"""

from __future__ import annotations

from collections.abc import Mapping

from tf_wu_shard.errors import StorageError
from tf_wu_shard.graph.calls import is_call
from tf_wu_shard.graph.op import Op
from tf_wu_shard.rules.variables import READ, WHOLE_READS, WRITES


def in_write_epochs(
    key: str, per_replica: Mapping[int, list[Op]], num_replicas: int, writing: set[str]
) -> list[tuple[list[tuple[int, Op]], list[tuple[int, Op]]]]:
    """The accesses in rounds: all reads before the i-th writes, then the i-th writes.

    Raises:
        StorageError: If the replicas do not write alike.
    """
    writes = {
        replica: [op for op in found if op.name in writing or _changes(op)]
        for replica, found in per_replica.items()
    }
    most = max(len(w) for w in writes.values())
    alike = len(writes) == num_replicas and len({len(w) for w in writes.values()}) == 1
    if most and not alike:
        raise StorageError(
            f"the function writes only some replicas' components of slot {key!r}, which lives in"
            " shards; assign the variable as a whole"
        )
    steps: list[tuple[list[tuple[int, Op]], list[tuple[int, Op]]]] = [
        ([], []) for _ in range(most + 1)
    ]
    for replica, found in per_replica.items():
        epoch = 0
        for op in found:
            if op.name in writing or _changes(op):
                steps[epoch][1].append((replica, op))
                epoch += 1
            else:
                steps[epoch][0].append((replica, op))
    return steps


def _changes(op: Op) -> bool:
    """Whether an op must be taken to change its variable."""
    return op.type in WRITES or not (op.type == READ or op.type in WHOLE_READS or is_call(op.type))
