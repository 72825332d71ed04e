"""The verdict on the rule of an op.

Values are random and differ from element to element, shards are of different lengths and their
padding is NaN, so that a wrong rule cannot agree by luck.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.layout import AnyLayout
from tf_wu_shard.placement import Cut, Placement, Replicated, Sharded
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.rules.registry import Family, family_of, localize, op_types, propagate
from tf_wu_shard.rules.writes import WRITES, is_fused_update, writes_rows
from tools.rule_proof import row_updates, rows, sums, updates
from tools.rule_proof.samples import Call, calls
from tools.rule_proof.shards import cut as cut_out
from tools.rule_proof.shards import layouts, together

PROVED, REFUSED, WRONG = "proved", "refused", "wrong"


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What came of proving the rule of one op.

    Attributes:
        op_type: The op's type.
        cut: What its operands are cut into.
        outcome: "proved", "refused" or "wrong"; refused where the rule takes none of the calls.
        count: How many calls agreed, each under one layout.
        detail: What was refused, or how the shards differ from the whole.
    """

    op_type: str
    cut: Cut
    outcome: str
    count: int
    detail: str = ""


def rules() -> tuple[tuple[str, Cut], ...]:
    """Every op type that has a rule, each with what is cut."""
    writes = {
        Cut.ELEMENTS: {op_type for op_type in WRITES if not writes_rows(op_type)},
        Cut.ROWS: {op_type for op_type in WRITES if not is_fused_update(op_type)},
    }
    return tuple(
        (op_type, cut) for cut in Cut for op_type in sorted({*op_types(cut), *writes[cut]})
    )


def prove(op_type: str, cut: Cut = Cut.ELEMENTS, seed: int = 7) -> Verdict:
    """Runs an op whole and in shards, and compares.

    Args:
        op_type: The op's type; one of no table is refused.
        cut: What its operands are cut into.
        seed: Of values, shapes and numbers of replicas.
    """
    if (op_type, cut) not in rules():
        return Verdict(op_type, cut, REFUSED, 0, f"no rule for {op_type}")
    random = np.random.default_rng(seed)
    found: Iterable[str | Refusal | None]
    if cut is Cut.ROWS:
        found = (row_updates if op_type in WRITES else rows).disagreements(op_type, random)
    elif op_type in WRITES:
        found = updates.disagreements(op_type, random)
    elif family_of(op_type) is Family.SUM:
        found = sums.disagreements(op_type, random)
    else:
        found = (
            disagreement(call, layout)
            for call in calls(op_type, random)
            for layout in layouts(random, _shape(call), _item_bytes(call))
        )
    return _verdict(op_type, cut, found)


def _verdict(op_type: str, cut: Cut, found: Iterable[str | Refusal | None]) -> Verdict:
    count, refusal = 0, ""
    for one in found:
        if isinstance(one, str):
            return Verdict(op_type, cut, WRONG, count, " ".join(one.split()))
        if one is None:
            count += 1
        else:
            refusal = refusal or str(one)
    if not count:
        return Verdict(op_type, cut, REFUSED, 0, refusal or "no kernel of it runs here")
    return Verdict(op_type, cut, PROVED, count, refusal)


def disagreement(call: Call, layout: AnyLayout) -> str | Refusal | None:
    """How the shards of a call differ from the whole; None where they agree.

    Args:
        call: The call.
        layout: How its tensors are cut.

    Returns:
        The difference, or the refusal of the call by its rule.
    """
    whole = call.run(call.operands)
    for output, expected in enumerate(whole):
        placements = tuple(_placement(call, i) for i in _sources(call, output))
        outcome = propagate(call.operation(expected), placements)
        if isinstance(outcome, Refusal):
            return outcome
        where = f"{call.op_type} of {[o.shape for o in call.operands]} cut as {layout}"
        if outcome != (Sharded(expected.shape),):
            return f"{where} is placed {outcome}, its result has shape {list(expected.shape)}"
        try:
            shards = [
                _on_shard(call, layout, r, output, expected.shape) for r in range(layout.num_shards)
            ]
        except tf.errors.OpError as error:
            return f"{where} fails in shards: {error.message}"
        if any(s.shape != layout.shard_shape(r) for r, s in enumerate(shards)):
            return f"{where} gives shards of shapes {[s.shape for s in shards]}"
        found = together(shards, layout).reshape(expected.shape)
        if found.dtype != expected.dtype or found.tobytes() != expected.tobytes():
            return f"{where} gives {_excerpt(found)} in shards, {_excerpt(expected)} whole"
    return None


def _shape(call: Call) -> tuple[int, ...]:
    return next(o.shape for o, own in zip(call.operands, call.cut, strict=True) if own)


def _item_bytes(call: Call) -> int:
    """Bytes of the narrowest element that is computed with: it decides where shards begin."""
    # Booleans are not stored in shards; what is compared is.
    return min((o.itemsize for o in call.operands if o.dtype != np.bool_), default=1)


def _placement(call: Call, operand: int) -> Placement:
    shape = call.operands[operand].shape
    return Sharded(shape) if call.cut[operand] else Replicated(shape)


def _on_shard(
    call: Call, layout: AnyLayout, replica: int, output: int, shape: tuple[int, ...]
) -> np.ndarray:
    """One output of a call, of `shape` whole, on one replica's shard, as the rewrite emits it."""
    relabels = family_of(call.op_type) is Family.RELABEL
    own: list[Any] = []
    for operand, sharded in zip(call.operands, call.cut, strict=True):
        if sharded:
            own.append(cut_out(operand, layout, replica))
        elif relabels:
            own.append(operand)
        elif operand.size == 1:
            own.append(operand.reshape(()))
        else:
            own.append(cut_out(np.broadcast_to(operand, shape), layout, replica))
    if relabels:
        found: np.ndarray = own[_sources(call, output)[0]]
        return found
    placements = tuple(_placement(call, number) for number in range(len(own)))
    return call.run_local(localize(call.operation(np.empty(shape)), placements), own)[output]


def _sources(call: Call, output: int) -> list[int]:
    """The operands that one output of a call may be made of."""
    operands = tuple(Value("", number) for number in range(len(call.operands)))
    op = Op("", call.op_type, operands, (), "", 0, None)
    return [value.index for value in op.operands_of(output)]


def _excerpt(array: np.ndarray) -> str:
    return f"{array.dtype} {np.array2string(array.reshape(-1)[:6], precision=8)}"
