"""A pass of its own, as a user would add one: gradients travel rounded to bfloat16.

What a replica rounds away it keeps, and adds to its next gradient (error feedback; Seide et al.,
*1-Bit Stochastic Gradient Descent*, Interspeech 2014). Nothing in tf_wu_shard knows it.
"""

from __future__ import annotations

import collections

from tf_wu_shard.errors import OptionError
from tf_wu_shard.extending import BFLOAT16, FLOAT32, Step, StepEdit, beside


class RoundedGradients:
    """The pass."""

    flag = "rounded_gradients"

    def parse(self, value: object) -> bool | None:
        """True is on; False and None are off."""
        if not isinstance(value, bool | None):
            raise OptionError(f"{self.flag!r} must be True or False, not {value!r}")
        return value or None

    def apply(self, step: Step, options: bool) -> Step:
        """Rounds every dense float32 gradient of a variable on its way into the sum."""
        edit = StepEdit(step)
        sums: collections.Counter[str] = collections.Counter()
        for reduction in step.reductions:
            key, travelling = step.weight_of(reduction), step.view.shape(reduction.operands[0])
            if not key or travelling is None or reduction.dtype != FLOAT32:
                continue
            variable = step.captured.variables[key]
            # A step may sum several gradients of one weight; each has a rest of its own.
            own = beside(variable, f"{self.flag}/{sums[key]}")
            handles = edit.handles(own, f"{key}/rounded_away")
            sums[key] += 1
            for copy, (operand, handle) in enumerate(zip(reduction.operands, handles, strict=True)):
                at = edit.at(copy, f"{key}/rounded")
                late = at.op("ReadVariableOp", [handle], "late", dtype=FLOAT32)
                wanted = at.op("AddV2", [operand, at.reshape(late, travelling, "flat")], "wanted")
                sent = at.cast(at.cast(wanted, BFLOAT16, "rounded"), FLOAT32, "sent")
                rest = at.reshape(at.op("Sub", [wanted, sent], "rest"), variable.shape, "own")
                edit.must_run(at.op("AssignVariableOp", [handle, rest], "keep"))
                edit.replace_operand(reduction, copy, sent)
        edit.report(self.flag, f"gradients rounded to bfloat16: {sum(sums.values())}")
        return edit.done()
