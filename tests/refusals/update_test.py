"""What is said of an update: where rules end, a replica that holds everything could go on."""

from __future__ import annotations

from tf_wu_shard.refusals import KINDS, Matrices, Rows, Rules, Updates


def test_rules_alone_leave_a_replica_that_holds_everything_whole() -> None:
    assert {kind for kind in KINDS.values() if kind.of_rules} == set(Rules)


def test_what_sparse_gradients_break_is_lifted_by_a_dense_one() -> None:
    assert all("a dense gradient" in kind.cure for kind in Rows)
    assert "an update without Foo" in Rows.NO_RULE_ON_ROWS.at("op", op_type="Foo").cure


def test_an_op_that_is_in_the_way_is_named_in_what_lifts_it() -> None:
    for refusal in (
        Rules.NO_RULE.at("op", op_type="Foo"),
        Matrices.NOT_FOR_ANOTHER.at("op", op_type="Foo"),
        Updates.OTHER_OPERAND.at("op", op_type="Foo", slot=1),
    ):
        assert "Foo" in refusal.cure and "Foo" in refusal.reason
