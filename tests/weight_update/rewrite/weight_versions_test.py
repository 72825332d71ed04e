"""A weight that others read between its writes has a version for each time that they may."""

from __future__ import annotations

from tf_wu_shard.weight_update.analysis.types import UpdatedVariable
from tf_wu_shard.weight_update.rewrite.weight_versions import (
    WeightVersion,
    open_version,
    weight_versions,
)


def weight(*versions: int) -> UpdatedVariable:
    return UpdatedVariable("w", ("w0",), (4,), 1, is_slot=False, versions=versions)


def test_each_version_has_the_writes_since_the_one_before() -> None:
    assert weight_versions(weight(1, 3, 4)) == (
        WeightVersion(1, 1),
        WeightVersion(3, 2),
        WeightVersion(4, 1),
    )


def test_writes_fill_one_version_after_the_other() -> None:
    first, second = versions = weight_versions(weight(2, 3))
    for name in ("one", "two"):
        assert open_version(versions) is first
        first.writes.append(name)
    assert open_version(versions) is second
    # What one replica's copy is filled with is nobody else's.
    assert second.writes == [] and weight_versions(weight(2, 3))[0].writes == []
