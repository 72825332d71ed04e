"""A graph as text, one op a line, for people to read and to compare.

    out/MatMul = MatMul(hidden/Relu, out/kernel/read, ^start) {transpose_b=True}  # [8,10] float32

Attributes that repeat the element types, or have their default values, are left out, and so are
those whose names begin with an underscore, which TensorFlow keeps for itself. A long value has its
digest in its place, so that lines differ where ops do. Names stand as they are: who shows them
escapes what does not print.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from tf_wu_shard.errors import WuShardError
from tf_wu_shard.graph.op import Op, Value, decoded
from tf_wu_shard.graph.view import GraphView, VariableRef

# More elements of a constant, or members of a list, stand as their digest.
_MOST_ELEMENTS = 8
_LONGEST_VALUE = 60

Shape = tuple[int, ...] | None


def op_text(
    view: GraphView,
    op: Op,
    shape_of: Callable[[Value], Shape],
    handles: Mapping[str, VariableRef],
) -> str:
    """An op in a line.

    Args:
        view: The graph.
        op: One of its ops.
        shape_of: The shape of a value, None where it is not known.
        handles: Whose handles ops yield, by their names.
    """
    edges = [*map(str, op.inputs), *(f"^{name}" for name in op.controls)]
    usual = _defaults(view, op.type)
    found = sorted(
        (key, _attribute(value))
        for key, value in op.node.attr.items()
        if _tells(key, value) and usual.get(key) != value
    )
    attributes = f" {{{' '.join(f'{k}={v}' for k, v in found)}}}" if found else ""
    ref = handles.get(op.name)
    results = f" handle of {ref.key}" if ref is not None else _results(view, op, shape_of)
    place = f" @{op.device}" if op.device else ""
    said = f"  #{results}{place}" if results or place else ""
    return f"{op.name} = {op.type}({', '.join(edges)}){attributes}{said}"


def _results(view: GraphView, op: Op, shape_of: Callable[[Value], Shape]) -> str:
    try:
        values = view.results(op.name)
        types = [_type_name(view.dtype(value)) for value in values]
    except WuShardError:
        return " ?"
    shapes = (shape_of(value) for value in values)
    shown = ("?" if s is None else f"[{','.join(map(str, s))}]" for s in shapes)
    return "".join(f" {shape} {name}" for shape, name in zip(shown, types, strict=True))


def _type_name(number: int) -> str:
    try:
        return str(tf.as_dtype(number).name)
    except TypeError:
        return f"type {number}"


def _defaults(view: GraphView, op_type: str) -> dict[str, Any]:
    definition = view.op_def(op_type)
    if definition is None:
        return {}
    return {a.name: a.default_value for a in definition.attr if a.HasField("default_value")}


def _tells(name: str, value: Any) -> bool:
    kind = value.WhichOneof("value")
    of_types = kind == "list" and bool(value.list.type)
    return not name.startswith("_") and kind not in (None, "type") and not of_types


def _attribute(value: Any) -> str:
    kind = value.WhichOneof("value")
    if kind == "tensor":
        return _tensor(value.tensor)
    if kind == "func":
        return str(value.func.name)
    if kind == "shape":
        return _shape(value.shape)
    if kind == "s":
        shown = decoded(value.s)
        return shown if len(shown) <= _LONGEST_VALUE else _digest(value.s)
    if kind == "list":
        return _list(value.list)
    return str(getattr(value, kind))


def _shape(shape: Any) -> str:
    return "[?]" if shape.unknown_rank else f"[{','.join(str(d.size) for d in shape.dim)}]"


def _list(found: Any) -> str:
    for field, members in found.ListFields():
        if field.name in ("i", "f", "b") and len(members) <= _MOST_ELEMENTS:
            return f"({', '.join(map(str, members))})"
        if field.name == "shape" and len(members) <= _MOST_ELEMENTS:
            return f"({', '.join(map(_shape, members))})"
        return f"{len(members)} of {field.name} {_digest(found.SerializeToString())}"
    return "()"


def _tensor(tensor: Any) -> str:
    sizes = [d.size for d in tensor.tensor_shape.dim]
    if not tensor.tensor_shape.unknown_rank and 0 <= math.prod(sizes) <= _MOST_ELEMENTS:
        try:
            return str(tf.make_ndarray(tensor).tolist())
        # One out of a file may contradict itself in any way.
        except Exception:
            return _digest(tensor.SerializeToString())
    return _digest(tensor.SerializeToString())


def _digest(data: bytes) -> str:
    return f"<{len(data)} bytes {hashlib.sha256(data).hexdigest()[:8]}>"
