"""Ops of a TPU program that concern one replica and have no form of their own on a CPU.

Each table entry adds, for every replica, plain ops that compute the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tf_wu_shard.emulation import attributes
from tf_wu_shard.emulation.clones import Clones, Replica

_INT32 = attributes.dtype(3)


def _const(clones: Clones, name: str, value: npt.ArrayLike, replica: Replica) -> str:
    attrs = {"value": attributes.tensor(value), "dtype": _INT32}
    clones.add("Const", name, (), replica.device, attrs=attrs)
    return f"{name}:output:0"


def _replica_id(clones: Clones, node: Any) -> None:
    for replica, inputs in zip(clones.replicas, clones.inputs(node), strict=True):
        attrs = {"value": attributes.tensor(np.int32(replica.number)), "dtype": _INT32}
        name, controls = replica.prefix + node.name, [text[1:] for text in inputs]
        clones.add("Const", name, (), replica.device, controls=controls, attrs=attrs)


def _sliced(clones: Clones, node: Any) -> None:
    """A dimension's dynamic size: what lies beyond it is not there.

    The slice begins at 0 and runs to `size` along the dimension, whole along all before it.
    """
    axis = int(clones.constant(node, 1))
    whole = (1 << axis) - 1
    for replica, inputs in zip(clones.replicas, clones.inputs(node), strict=True):
        name = replica.prefix + node.name
        begin = _const(clones, f"{name}/begin", np.zeros(axis + 1, np.int32), replica)
        strides = _const(clones, f"{name}/strides", np.ones(axis + 1, np.int32), replica)
        single = {"Tshape": _INT32, "T": _INT32}
        shape = _const(clones, f"{name}/shape", np.array([1], np.int32), replica)
        clones.add("Reshape", f"{name}/size", [inputs[2], shape], replica.device, attrs=single)
        end = f"{name}/size:output:0"
        if axis:
            ahead = _const(clones, f"{name}/ahead", np.zeros(axis, np.int32), replica)
            zero = _const(clones, f"{name}/axis", np.int32(0), replica)
            attrs = {"N": attributes.integer(2), "T": _INT32, "Tidx": _INT32}
            clones.add("ConcatV2", f"{name}/end", [ahead, end, zero], replica.device, attrs=attrs)
            end = f"{name}/end:output:0"
        attrs = {
            "T": node.attr["T"],
            "Index": _INT32,
            "begin_mask": attributes.integer(whole),
            "end_mask": attributes.integer(whole),
        }
        data = [inputs[0], begin, end, strides]
        controls = [text[1:] for text in inputs[3:]]
        clones.add("StridedSlice", name, data, replica.device, controls=controls, attrs=attrs)


def _unchanged(clones: Clones, node: Any) -> None:
    """What is a hint to the compiler and changes no value."""
    for replica, inputs in zip(clones.replicas, clones.inputs(node), strict=True):
        name, controls = replica.prefix + node.name, [t[1:] for t in inputs if t[0] == "^"]
        attrs = {"T": node.attr.get("T", _INT32)}
        clones.add("Identity", name, inputs[:1], replica.device, controls=controls, attrs=attrs)


def _barrier(clones: Clones, node: Any) -> None:
    """Keeps the compiler from reordering; an op that returns all its inputs does so here."""
    types = {"T": node.attr["T"]}
    for replica, inputs in zip(clones.replicas, clones.inputs(node), strict=True):
        data = [text for text in inputs if text[0] != "^"]
        controls = [text[1:] for text in inputs if text[0] == "^"]
        name = replica.prefix + node.name
        clones.add("IdentityN", name, data, replica.device, controls=controls, attrs=types)


LOCAL_OPS: dict[str, Callable[[Clones, Any], None]] = {
    "XlaReplicaId": _replica_id,
    "XlaSetDynamicDimensionSize": _sliced,
    "XlaSetBound": _unchanged,
    "XlaSharding": _unchanged,
    "XlaOptimizationBarrier": _barrier,
}

# What ops of these types return is called otherwise than what stands in their place.
RESULTS = {
    "XlaReplicaId": ("id", "output"),
    "XlaSetBound": ("output", "output"),
}
