"""Accesses of a shard wait for those that they must not pass, and for no others."""

from __future__ import annotations

from tf_wu_shard.weight_update.rewrite.access_order import AccessOrder


def test_a_write_waits_for_the_reads_since_the_last_one_and_a_read_for_that_alone() -> None:
    order = AccessOrder()
    assert order.before("slot", writes=True) == []
    order.after("slot", "read", writes=False)
    assert order.before("slot", writes=False) == []
    assert order.before("slot", writes=True) == ["read"]
    order.after("slot", "write", writes=True)
    order.after("slot", "again", writes=False)
    assert order.before("slot", writes=False) == ["write"]
    assert order.before("slot", writes=True) == ["write", "again"]
    assert order.before("other", writes=True) == []
