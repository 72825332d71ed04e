"""What would lift a reason: told where the reason tells it, and nowhere else."""

from __future__ import annotations

import pytest

from tf_wu_shard.inspection.answers.lifting import lifted_by
from tf_wu_shard.plan.types import EACH, TOO_SMALL


@pytest.mark.parametrize(
    ("reason", "lift"),
    [
        (f"64 {TOO_SMALL}1024", "lower min_elements"),
        (f"64 {TOO_SMALL}8192{EACH}8 replicas a tile of 1024", "fewer replicas, or a lower min"),
        ("no rule for Cumsum", "a rule for this op"),
        ("its update runs inside of While, a branch or a loop", "outside of"),
        (
            "its gradient is sparse, and where its rows come from is unknown",
            "an optimizer whose update of single rows is known",
        ),
        (
            "its gradient is sparse, and another's names its rows by ids too: which entries are"
            " whose is not known",
            "its own gradient's alone",
        ),
        (
            "its gradient is sparse here and would be dense on TPUs: how it is updated then, this"
            " step does not show",
            "traced for TPUs",
        ),
        ("the shape of its result is not known when traced", "shapes that are fixed"),
        ("it sums over some of the replicas only", "a sum over all replicas"),
    ],
)
def test_a_reason_that_tells_it_is_lifted(reason: str, lift: str) -> None:
    assert lift in lifted_by(reason)


def test_a_reason_that_does_not_is_not() -> None:
    assert lifted_by("it reads w between two of its writes") == ""
