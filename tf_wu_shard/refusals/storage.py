"""Kinds of refusals: variables in shards."""

from __future__ import annotations

from tf_wu_shard.refusals import lifted_by
from tf_wu_shard.refusals.kind import Kind

_UNSTORED = "{it} cannot be stored in shards:"
_IN_THE_PROGRAM = "uses of it inside of the TPU program alone"


class Storage(Kind):
    """Why a variable cannot live in shards."""

    # Who else uses it.
    CAPTURED = (
        "{it} is captured by {function}, traced before",
        "tracing the step before whatever else uses the variable; if the step itself makes"
        " its slots,"
        f" {lifted_by.BUILT_BEFORE}",
    )
    USED_BY_CALLEE = (
        "{it} is also used by a function that this one calls",
        "uses of it in the function that updates it alone",
    )
    USED_OUTSIDE = ("{it} is also used outside of the TPU program", _IN_THE_PROGRAM)
    USED_BY_HOST = ("{it} is used outside of the TPU program by {op} ({op_type})", _IN_THE_PROGRAM)
    HANDED_ON = (
        "{it} is handed to {op} ({op_type}), so it may be read inside of it; read its"
        " value before and"
        " use that",
        lifted_by.ITS_VALUE,
    )
    READ_BY_HANDLE = ("{it} is read by {op} ({op_type}), not as a value", lifted_by.ITS_VALUE)
    UPDATED_INSIDE_USED_OUTSIDE = (
        "{it} is updated inside of {op} and also used outside of it",
        "uses of it in one branch or loop alone",
    )
    UPDATED_INSIDE_USED_ELSEWHERE = (
        "{it} is updated inside of {op} and also used in another branch or loop",
        "uses of it in one branch or loop alone",
    )

    # What it is.
    NOT_PACKED = "{it} is not packed into one handle for all replicas"
    MADE_ANEW = "{it} is made anew in every run"
    SAME_AS_ANOTHER = "{it} is the same variable as {other}"
    NO_VALUE = (
        "{it} has no value yet, as this first step makes it (the next is traced again); build the"
        " optimizer before the first step: optimizer.build(model.trainable_variables)",
        lifted_by.BUILT_BEFORE,
    )
    OTHER_VARIABLE = (
        f"{_UNSTORED} it is a {{type}}, not an unsharded mirrored variable",
        lifted_by.MIRRORED,
    )
    OPEN_SHAPE = (f"{_UNSTORED} its shape {{shape}} is not fully known", lifted_by.FIXED_SHAPES)
    NOT_COPIED = f"{_UNSTORED} its dtype {{dtype}} has no copy kernel"
    NOT_PLAIN = f"{_UNSTORED} a component is not a plain eager variable, or reads through a cache"
