"""What is said of a whole step, its branches and its replicas."""

from __future__ import annotations

import pytest

from tf_wu_shard.refusals import Branches, Inspection, Kind, Replicas, Topology


@pytest.mark.parametrize("kind", list(Branches), ids=lambda kind: kind.key)
def test_a_branch_that_stays_one_says_so_and_would_be_lifted_by_an_update_outside(
    kind: Kind,
) -> None:
    assert kind.says.startswith("its branches are not written out, as ")
    assert "outside of branches" in kind.cure


@pytest.mark.parametrize("kind", list(Replicas), ids=lambda kind: kind.key)
def test_replicas_that_differ_can_always_be_made_alike(kind: Kind) -> None:
    assert kind.cure


def test_a_function_that_cannot_be_shared_at_all_is_no_matter_of_rules() -> None:
    assert not any(kind.of_rules for group in (Topology, Branches, Inspection) for kind in group)
