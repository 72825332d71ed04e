"""Collects new nodes for a graph: names kept unique, attributes spelled once.

Writes NodeDefs and nothing else; it does not know the ops it writes, and TensorFlow checks them
when the finished graph is imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_wu_shard.graph.op import Value


def graph_def_of(nodes: Iterable[Any], source: Any) -> Any:
    """A GraphDef of these nodes, with the versions and functions of the GraphDef `source`."""
    graph_def = tf.compat.v1.GraphDef(versions=source.versions, library=source.library)
    graph_def.node.extend(nodes)
    return graph_def


# Looked up once: TensorFlow's modules are loaded lazily, and a lookup passes through three of them.
_NodeDef = tf.compat.v1.NodeDef


def with_inputs(node: Any, instead: Mapping[str, str]) -> Any:
    """A NodeDef that takes other results, as NodeDefs name them; the same one if it takes none."""
    if instead.keys().isdisjoint(node.input):
        return node
    new = _NodeDef()
    new.CopyFrom(node)
    for slot, text in enumerate(node.input):
        new.input[slot] = instead.get(text, text)
    return new


def _node(
    name: str, op_type: str, inputs: Sequence[Value], controls: Iterable[str], device: str
) -> Any:
    edges = [f"{v.op}:{v.index}" if v.index else v.op for v in inputs]
    edges += [f"^{c}" for c in sorted(set(controls))]
    return _NodeDef(name=name, op=op_type, device=device, input=edges)


class GraphBuilder:
    """Adds nodes beside those a graph has already.

    Attributes:
        nodes: The new NodeDefs, each after its inputs.
    """

    def __init__(self, taken: Iterable[str]) -> None:
        """Starts with no node.

        Args:
            taken: Names that the new nodes must not have.
        """
        self._taken = set(taken)
        self._counts: dict[str, int] = {}
        self._ordinals: dict[str, int] = {}
        self._constants: dict[tuple[str, Any, str], Value] = {}
        self.nodes: list[Any] = []

    def unique(self, name: str) -> str:
        """A name like `name` that no node has; it is taken from now on."""
        candidate, count = name, self._counts.get(name, 0)
        while candidate in self._taken:
            count += 1
            candidate = f"{name}_{count}"
        # The next of this name goes on from here: a bucket has thousands of slices.
        self._counts[name] = count
        self._taken.add(candidate)
        return candidate

    def ordinal(self, kind: str) -> int:
        """The number, from 0, of the next thing of a kind in this graph."""
        number = self._ordinals.get(kind, 0)
        self._ordinals[kind] = number + 1
        return number

    def op(
        self,
        op_type: str,
        inputs: Sequence[Value],
        *,
        name: str,
        device: str,
        controls: Iterable[str] = (),
        types: Mapping[str, int] | None = None,
        ints: Mapping[str, int] | None = None,
        strings: Mapping[str, str] | None = None,
    ) -> Value:
        """Adds one op.

        Args:
            op_type: Its type.
            inputs: Its data inputs.
            name: Its name, made unique.
            device: Where it runs, or "".
            controls: Names of ops that must run before it.
            types: Attributes that are element types, as DataType numbers.
            ints: Attributes that are integers.
            strings: Attributes that are strings.

        Returns:
            Its first output.
        """
        node = _node(self.unique(name), op_type, inputs, controls, device)
        for key, number in (types or {}).items():
            node.attr[key].type = number
        for key, integer in (ints or {}).items():
            node.attr[key].i = integer
        for key, text in (strings or {}).items():
            node.attr[key].s = text.encode()
        self.nodes.append(node)
        return Value(node.name)

    def like(
        self,
        template: Any,
        inputs: Sequence[Value],
        *,
        name: str,
        device: str,
        controls: Iterable[str] = (),
    ) -> Value:
        """Adds an op of the type and attributes of the NodeDef `template`.

        Attributes that only describe where the template stood (its output shapes, its colocation)
        are left out.
        """
        node = _node(self.unique(name), template.op, inputs, controls, device)
        for key, attribute in template.attr.items():
            if not key.startswith("_"):
                node.attr[key].CopyFrom(attribute)
        self.nodes.append(node)
        return Value(node.name)

    def constant(self, value: Any, *, device: str, dtype: int = 3) -> Value:
        """A constant; equal ones on one device are one node.

        Args:
            value: A Python number or a flat list of them.
            device: Where it lives.
            dtype: The DataType number; int32 by default.
        """
        key = (repr(value), dtype, device)
        if key not in self._constants:
            array = np.asarray(value, tf.as_dtype(dtype).as_numpy_dtype)
            node = tf.compat.v1.NodeDef(
                name=self.unique("wu_shard/constant"), op="Const", device=device
            )
            node.attr["dtype"].type = dtype
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(array))
            self.nodes.append(node)
            self._constants[key] = Value(node.name)
        return self._constants[key]
