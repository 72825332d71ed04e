"""What stays whole is known by variable, update and weight apart."""

from __future__ import annotations

from tf_wu_shard import refusals
from tf_wu_shard.layout import flat_layout
from tf_wu_shard.weight_update.plan.constraints import StorageConstraints


def test_a_variable_more_stays_whole_with_its_update_or_alone() -> None:
    first, second = (refusals.Rules.RESULT_SHAPE_UNKNOWN.at(name) for name in ("one", "two"))
    before = StorageConstraints({"v": first}, in_shards={"m": flat_layout((4,), 2, 1)})
    after = before.keeping("w", second, update=True).keeping("w", first, update=False)
    assert after.whole_updates == {"v": first, "w": second}
    assert after.whole_weights == {"w": first}
    assert after.in_shards == before.in_shards
    assert before.whole_updates == {"v": first} and before.whole_weights == {}
