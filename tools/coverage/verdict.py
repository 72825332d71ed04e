"""What a pair of trainings means for its cell of the coverage matrix."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from tf_wu_shard.report.report import Report
from tools.coverage.table import Cell

# How far results may be apart, relative to a tensor's largest element, and what that is called.
# Another order of the sums in norms and means is a few roundings of float32 (6e-8 each) in each of
# the steps; an update divided by the root of tiny squares multiplies them. How far is a matter of
# the processor, which sums in lanes of its own: at most 2.3e-6 were measured with AVX2, 5.7e-6 with
# AVX-512, in tf_keras' Adafactor of clipped gradients, where another order of the hidden units
# moves the unsharded training by up to 1.2e-5. A wrong shard is apart by a step, 1e-3.
_BOUNDS = {0.0: "exact", 5e-6: "within 5e-6", 2e-5: "within 2e-5"}

WRONG = "WRONG"


def judged(
    matrices: Collection[str], whole: Collection[str], reports: Sequence[Report], apart: float
) -> Cell:
    """The cell of a training that ran both ways.

    Args:
        matrices: Names of the weights that are large enough for every dialect.
        whole: Names of weights and slots that are not in shards, though their matrix was updated
            so; only those that the dialect means to store in shards.
        reports: The pass's reports on the sharded run.
        apart: The largest difference of any weight or slot, relative to its tensor's largest
            element.

    Returns:
        The verdict. "WRONG" where the results differ by more than rounding or with nothing
        sharded, and where something is left whole without a reason.
    """
    done = {v.name for report in reports for v in report.variables} & set(matrices)
    reasons = [
        left.reason
        for report in reports
        for left in report.left_alone
        if left.name in matrices and left.name not in done
    ]
    said = [note for report in reports for note in report.notes]
    if whole:
        reasons += [note for note in said if "stay whole" in note or "stays whole" in note]
    if not done:
        reasons += said
    notes = tuple(dict.fromkeys(steady(reason) for reason in reasons))
    wrong = apart > max(_BOUNDS) or (apart and not done)
    if wrong or ((whole or len(done) < len(matrices)) and not notes):
        return Cell(f"{WRONG}: {difference(apart)}", notes)
    if not done:
        return Cell("alone", notes)
    return Cell(f"{'' if len(done) == len(matrices) else 'partly, '}{difference(apart)}", notes)


def difference(apart: float) -> str:
    """A difference in words that a rounding more or less does not change."""
    return next((text for bound, text in _BOUNDS.items() if apart <= bound), f"{apart:.0e} apart")


def agree(said: Cell, found: Cell) -> bool:
    """Whether a cell is what the page says: reasons and all, and no farther from exact."""
    order = [*_BOUNDS.values()]
    (kind, bound), (kind_found, bound_found) = (_split(cell.text) for cell in (said, found))
    if bound not in order or bound_found not in order:
        return said == found
    nearer = order.index(bound_found) <= order.index(bound)
    return kind == kind_found and nearer and said.notes == found.notes


def _split(text: str) -> tuple[str, str]:
    kind, _, bound = text.rpartition(", ")
    return kind, bound


def steady(reason: str) -> str:
    """A reason without the numbers by which TensorFlow tells names apart."""
    return re.sub(r"_\d+\b", "", reason).replace("\n", " ").replace("|", "/")
