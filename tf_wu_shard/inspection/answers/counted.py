"""What the bytes of an answer count, in words: which weights, whose slots, which gradients."""

from __future__ import annotations

from collections.abc import Iterator

from tf_wu_shard.inspection.answers.answer import FunctionAnswer, RefusedAnswer
from tf_wu_shard.report.quantities import byte_text
from tf_wu_shard.report.report import Report, slot_label

# For what neither the files nor the step's graph show.
NOT_KNOWN = "not known"


def what_is_counted(function: FunctionAnswer, report: Report) -> tuple[str, ...]:
    """Says what a function's bytes count, in sentences; () where it has no variables.

    Args:
        function: The function.
        report: Its plan.
    """
    return tuple(_sentences(function, report))


def _sentences(function: FunctionAnswer, report: Report) -> Iterator[str]:
    total = len(report.variables) + len(report.left_alone)
    refused = function.refused
    if not total:
        return
    if not function.memory:
        yield "Bytes are those of the updates that were understood."
        return
    which = f"all {total:,} variables" if total > 1 else "the one variable"
    yield f"Counted are the weights of {which}, sharded or left alone, and their slots."
    unsized = sum(answer.bytes is None for answer in refused)
    if unsized:
        yield f"Not among them: {_weights(unsized)} of a size that nothing tells."
    untold = sum(not answer.slots_told for answer in refused)
    if untold:
        yield (
            f"Slots of {_weights(untold)} left alone are not counted, or not all of them: neither"
            " the files nor the step's graph tell which they are."
        )
    if function.others:
        many = "variables" if function.others > 1 else "variable"
        yield (
            f"Not counted: {function.others:,} other {many} of several elements that the step"
            " writes, such as averages of rows and columns or statistics of layers."
        )
    unsummed = sum(not answer.is_summed for answer in refused)
    if unsummed:
        yield (
            "What is received is that of the gradients found: those of"
            f" {_weights(unsummed)} left alone are not."
        )
    if function.sparse:
        many = "gradients" if function.sparse > 1 else "gradient"
        yield (
            f"What is received does not count {function.sparse:,} sparse {many}: as large as what a"
            " batch looks up."
        )


def _weights(count: int) -> str:
    return f"{count:,} weights" if count > 1 else "1 weight"


def counts_all_weights(function: FunctionAnswer) -> bool:
    """Whether the sizes of all weights are known."""
    return all(answer.bytes is not None for answer in function.refused)


def counts_all_slots(function: FunctionAnswer) -> bool:
    """Whether the slots of all weights that are left alone are known, and counted."""
    return all(answer.slots_told for answer in function.refused)


def counts_all_gradients(function: FunctionAnswer) -> bool:
    """Whether what is received counts the gradients of all weights."""
    return not function.sparse and all(answer.is_summed for answer in function.refused)


def bytes_text(count: int, *, all_counted: bool) -> str:
    """A number of bytes: `12.8 MB`, of what not all is counted `at least 12.8 MB`, `not known`."""
    if all_counted:
        return byte_text(count)
    return f"at least {byte_text(count)}" if count else NOT_KNOWN


def described_line(answer: RefusedAnswer) -> str:
    """What is known of a refused weight: `[1000,64] float32, 256 kB   slots m, v`."""
    shape = NOT_KNOWN if answer.shape is None else f"[{','.join(map(str, answer.shape))}]"
    size = "" if answer.bytes is None else f", {byte_text(answer.bytes)}"
    return f"{shape} {answer.dtype}".rstrip() + f"{size}   slots {slots_text(answer)}"


def slots_text(answer: RefusedAnswer) -> str:
    """Its slots, as far as they are known: `m, v`, `none`, `not known`."""
    labels = [slot_label(slot, answer.variable) for slot in answer.slots]
    if not answer.slots_told:
        labels.append("others not known" if labels else NOT_KNOWN)
    return ", ".join(labels) or "none"
