"""What would let a variable be sharded that is left alone, as far as its reason tells."""

from __future__ import annotations

import re

# What a reason says, and what would lift it. The first that fits counts. A reason that is not here
# tells what the pass saw and nothing of what to do: then nothing is said.
_LIFTS: tuple[tuple[str, str], ...] = (
    (
        r"elements, below min_elements=\d+, for each of",
        "fewer replicas, or a lower min_elements: then part of what they exchange is padding",
    ),
    (
        r"elements, below min_elements=\d+",
        "lower min_elements; it is left alone because sharing so little costs more than it saves",
    ),
    (r"no rule for ", "a rule for this op, or an update without it"),
    (
        r"its update runs inside of",
        "an update outside of branches and loops",
    ),
    (r"would be dense on TPUs", "a step that was traced for TPUs, in which its gradient is dense"),
    (r"another's names its rows by", "numbers of rows that are its own gradient's alone"),
    (
        r"its gradient is sparse|sparse gradient",
        "a dense gradient, or an optimizer whose update of single rows is known",
    ),
    (
        r"is not known when traced|shape of its gradient|of no static shape",
        "shapes that are fixed when the step is traced",
    ),
    (
        r"some of the replicas only|not every replica takes part|its group has",
        "a sum over all replicas",
    ),
    (
        r"the step returns a value|also looks at a value of the update",
        "a step that does not look into the update",
    ),
    (r"keeps its own value|not a mirrored variable", "one mirrored variable for all replicas"),
    (
        r"more than one value|enters its update by",
        "a step that was traced for replicas, in which sums are marked",
    ),
    (r"outside compilation|outside of the TPU program", "an update inside of the TPU program"),
)


def lifted_by(reason: str) -> str:
    """What would lift a reason.

    Args:
        reason: Why a variable is left alone.

    Returns:
        What would; "" where the reason does not tell.
    """
    return next((lift for pattern, lift in _LIFTS if re.search(pattern, reason)), "")
