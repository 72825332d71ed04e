"""The proof of an op's rule: run it whole, run it in shards, compare bit for bit.

Values are random and differ from element to element, and shards are of different lengths, so that
a wrong rule cannot agree by luck.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_wu_shard.layout import Layout, flat_layout
from tf_wu_shard.placement import Placement, Refusal, Replicated, Sharded
from tf_wu_shard.rules.elementwise import ON_VECTORS
from tf_wu_shard.rules.registry import Family, family_of, propagate
from tf_wu_shard.rules.shapes import source_operands
from tf_wu_shard.tensorflow_private import function_graph

_BOOLEAN = frozenset({"LogicalNot", "LogicalAnd", "LogicalOr"})


@dataclasses.dataclass(frozen=True)
class Call:
    """One op with values for its operands."""

    op_type: str
    operands: tuple[np.ndarray, ...]

    def run(self, operands: Sequence[Any]) -> tuple[np.ndarray, ...]:
        """The op's outputs for these operands, computed by its kernel."""
        return tuple(np.asarray(o) for o in _outputs(self.op_type, operands))


def arity(op_type: str) -> int:
    """How many tensors an op of this type takes; 2 where it takes any number."""
    return sum(
        2 if a.number_attr or a.type_list_attr else 1 for a in _definition(op_type).input_arg
    )


def sample_call(
    op_type: str, random: np.random.Generator, shape: tuple[int, ...], cut: Sequence[bool]
) -> Call:
    """A call of an op whose operand i is a tensor of `shape` if `cut[i]`, else one element."""
    size = int(np.prod(shape))
    if op_type == "Reshape":
        return Call(op_type, (_numbers(random, shape), np.array([size], np.int32)))
    if op_type == "ExpandDims":
        return Call(op_type, (_numbers(random, shape), np.array(0, np.int32)))
    if op_type == "Squeeze":
        return Call(op_type, (_numbers(random, (1, *shape)),))
    if op_type == "BiasAdd":
        return Call(op_type, (_numbers(random, (1, size)), _numbers(random, (size,))))
    operands = []
    for number in range(arity(op_type)):
        own = shape if cut[number] or op_type in ("AddN", "IdentityN") else ()
        if op_type == "ClipByValue":
            # Its bounds are scalars, or as large as its operand.
            operands.append(_numbers(random, own) + np.float32((0, -1, 1)[number]))
        elif op_type in _BOOLEAN or (op_type == "SelectV2" and number == 0):
            operands.append(random.integers(0, 2, own).astype(bool))
        else:
            operands.append(_numbers(random, own))
    return Call(op_type, tuple(operands))


def disagreement(call: Call, replicas: int) -> str | None:
    """How the shards of a call differ from the whole; None where they agree.

    Raises:
        AssertionError: If the rule refuses the call.
    """
    whole = call.run(call.operands)
    size = max(o.size for o in call.operands)
    layouts = [flat_layout(o.shape, replicas, 4) for o in call.operands]
    for output, expected in enumerate(whole):
        sources = range(len(call.operands))
        if family_of(call.op_type) is Family.RELABEL:
            sources = source_operands(call.op_type, output, len(call.operands))
        placements = tuple(_placement(call, i, size) for i in sources)
        outcome = propagate(call.op_type, call.op_type, placements, expected.shape)
        assert not isinstance(outcome, Refusal), f"{call.op_type} refuses: {outcome}"
        if outcome != Sharded(expected.shape):
            return f"{call.op_type} is placed {outcome}, its result has shape {expected.shape}"
        shards = [_on_shard(call, layouts, replica, output, size) for replica in range(replicas)]
        together = np.concatenate(shards).reshape(expected.shape)
        if together.dtype != expected.dtype or together.tobytes() != expected.tobytes():
            return f"{call.op_type} on shards gives {together}, whole {expected}"
    return None


def _placement(call: Call, operand: int, size: int) -> Placement:
    shape = call.operands[operand].shape
    return Sharded(shape) if _is_cut(call.operands[operand], size) else Replicated(shape)


def _is_cut(operand: np.ndarray, size: int) -> bool:
    # Integers are axes and shapes here.
    return operand.size == size and operand.dtype != np.int32


def _on_shard(
    call: Call, layouts: Sequence[Layout], replica: int, output: int, size: int
) -> np.ndarray:
    """One output of a call on one replica's shard, as the rewrite emits it."""
    own = []
    for operand, layout in zip(call.operands, layouts, strict=True):
        if _is_cut(operand, size):
            start, stop = layout.bounds(replica)
            own.append(operand.reshape(-1)[start:stop])
        else:
            own.append(operand if operand.dtype == np.int32 else operand.reshape(()))
    if family_of(call.op_type) is Family.RELABEL:
        return own[source_operands(call.op_type, output, len(own))[0]]
    return Call(ON_VECTORS.get(call.op_type, call.op_type), ()).run(own)[output]


def _numbers(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.asarray(random.normal(size=shape) * 2 + 0.5, np.float32)


@functools.cache
def _definition(op_type: str) -> Any:
    definition = function_graph.op_def(op_type)
    assert definition is not None, f"TensorFlow has no op {op_type}"
    return definition


def _outputs(op_type: str, operands: Sequence[Any]) -> list[Any]:
    """Runs an op eagerly, its operands given in order, its attributes at their defaults."""
    named: dict[str, Any] = {}
    given = list(operands)
    for argument in _definition(op_type).input_arg:
        if argument.number_attr or argument.type_list_attr:
            named[argument.name] = given
        else:
            named[argument.name] = given.pop(0)
    if op_type == "ExpandDims":
        named["axis"] = named.pop("dim")
    if op_type == "Cast":
        named["DstT"] = tf.int32
    result = getattr(tf.raw_ops, op_type)(**named)
    return list(result) if isinstance(result, (list, tuple)) else [result]
