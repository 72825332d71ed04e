"""Collects new nodes for a graph: names kept unique, attributes derived from operands.

Writes NodeDefs and nothing else; it does not know what the ops mean, and TensorFlow checks them
when the finished graph is imported. Ops are added through an `Emitter`, see `GraphBuilder.at`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tf_wu_shard.dtypes import INT32, INT64, RESOURCE
from tf_wu_shard.errors import WuShardError
from tf_wu_shard.graph.attributes import Signature, write
from tf_wu_shard.graph.op import Value
from tf_wu_shard.tensorflow_private.function_graph import op_def
from tf_wu_shard.unique_names import UniqueNames

# Grappler's arithmetic optimizer merges trees of additions into one AddN, in another order, unless
# a node carries this mark of having been merged already (arithmetic_optimizer.cc).
KEEP_ORDER = "_grappler_ArithmeticOptimizer_AddOpsRewriteStage"
# Grappler keeps a node that carries this one (grappler_item.cc).
KEEP = "_grappler_do_not_remove"


def graph_def_of(nodes: Iterable[Any], source: Any) -> Any:
    """A GraphDef of these nodes, with the versions and functions of the GraphDef `source`."""
    graph_def = tf.compat.v1.GraphDef(versions=source.versions, library=source.library)
    graph_def.node.extend(nodes)
    return graph_def


# Looked up once: TensorFlow's modules are loaded lazily, and a lookup passes through three of them.
_NodeDef = tf.compat.v1.NodeDef


def _node(
    name: str, op_type: str, inputs: Sequence[Value], controls: Iterable[str], device: str
) -> Any:
    edges = [str(value) for value in inputs]
    edges += [f"^{c}" for c in sorted(set(controls))]
    return _NodeDef(name=name, op=op_type, device=device, input=edges)


class GraphBuilder:
    """Adds nodes beside those a graph has already, and knows the element type of every value.

    Attributes:
        nodes: The new NodeDefs, each after its inputs.
    """

    def __init__(
        self, taken: Iterable[str], dtype_of: Callable[[Value], int] | None = None
    ) -> None:
        """Starts with no node.

        Args:
            taken: Names that the new nodes must not have.
            dtype_of: The element types, as DataType numbers, of values that are not added here.
        """
        self._names = UniqueNames(taken)
        self._ordinals: dict[str, int] = {}
        self._constants: dict[tuple[str, Any, str], Value] = {}
        self._dtype_of = dtype_of
        self._dtypes: dict[Value, int] = {}
        self.nodes: list[Any] = []

    def unique(self, name: str) -> str:
        """A name like `name` that no node has; it is taken from now on."""
        return self._names.take(name)

    def dtype(self, value: Value) -> int:
        """The element type of a value, as a DataType number.

        Raises:
            WuShardError: If it is not known.
        """
        if value in self._dtypes:
            return self._dtypes[value]
        if self._dtype_of is None:
            raise WuShardError(f"{value} is no value of this graph")
        return self._dtype_of(value)

    def note(self, value: Value, dtype: int) -> Value:
        """Notes the element type of a value that is not added here, and returns the value."""
        self._dtypes[value] = dtype
        return value

    def add(self, node: Any) -> Value:
        """Adds a finished NodeDef of a name that is its own.

        Returns:
            Its first output.
        """
        self.nodes.append(node)
        for index, dtype in enumerate(result_types(node)):
            self._dtypes[Value(node.name, index)] = dtype
        return Value(node.name)

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
        attributes: Mapping[str, Any] | None = None,
    ) -> Value:
        """Adds one op.

        Args:
            op_type: Its type.
            inputs: Its data inputs.
            name: Its name, made unique.
            device: Where it runs, or "".
            controls: Names of ops that must run before it.
            attributes: Those that neither its operands nor TensorFlow's defaults determine: numbers
                (of an element type its DataType number), strings, shapes, lists of these, or
                AttrValues.

        Returns:
            Its first output.
        """
        signature = _signature(op_type)
        own = signature.attributes_of([self.dtype(value) for value in inputs])
        node = _node(self.unique(name), op_type, inputs, controls, device)
        for attribute, value in {**own, **(attributes or {})}.items():
            if attribute not in signature.kinds:
                raise WuShardError(f"{op_type} has no attribute {attribute!r}")
            write(node.attr[attribute], signature.kinds[attribute], value)
        return self.add(node)

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
        return self.add(node)

    def constant(self, value: Any, *, device: str, dtype: int = INT32) -> Value:
        """A constant; equal ones on one device are one node.

        Args:
            value: A Python number or a flat list of them.
            device: Where it lives.
            dtype: The DataType number; int32 by default.
        """
        key = (repr(value), dtype, device)
        if key not in self._constants:
            array = np.asarray(value, tf.as_dtype(dtype).as_numpy_dtype)
            node = _NodeDef(name=self.unique("wu_shard/constant"), op="Const", device=device)
            node.attr["dtype"].type = dtype
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(array))
            self._constants[key] = self.add(node)
        return self._constants[key]

    def at(self, device: str, scope: str) -> Emitter:
        """Where ops are added: on a device, under a name scope."""
        return Emitter(self, device, scope)


class Emitter(NamedTuple):
    """Adds ops to a graph on one device, under one name scope.

    Every op's name is given last, relative to the scope; "" stands for the scope's own name.

    Attributes:
        builder: The graph.
        device: Where the ops run; "" leaves it open.
        scope: The name scope.
    """

    builder: GraphBuilder
    device: str
    scope: str

    def on(self, device: str) -> Emitter:
        """The same name scope on another device."""
        return self._replace(device=device)

    def within(self, name: str) -> Emitter:
        """A name scope inside of this one, on the same device."""
        return self._replace(scope=self._full(name))

    def dtype(self, value: Value) -> int:
        """The element type of a value, as a DataType number."""
        return self.builder.dtype(value)

    def op(
        self,
        op_type: str,
        inputs: Sequence[Value],
        name: str,
        /,
        *,
        controls: Iterable[str] = (),
        **attributes: Any,
    ) -> Value:
        """Adds an op, see `GraphBuilder.op`.

        Returns:
            Its first output.
        """
        return self.builder.op(
            op_type,
            inputs,
            name=self._full(name),
            device=self.device,
            controls=controls,
            attributes=attributes,
        )

    def like(
        self, template: Any, inputs: Sequence[Value], name: str, *, controls: Iterable[str] = ()
    ) -> Value:
        """Adds an op of the type and attributes of a NodeDef, see `GraphBuilder.like`."""
        full = self._full(name)
        return self.builder.like(template, inputs, name=full, device=self.device, controls=controls)

    def constant(self, value: Any, dtype: int = INT32) -> Value:
        """A constant, see `GraphBuilder.constant`."""
        return self.builder.constant(value, device=self.device, dtype=dtype)

    def value(self, value: Value | int) -> Value:
        """A value as it is, a number as a constant of int32."""
        return value if isinstance(value, Value) else self.constant(value)

    def handle_input(self, name: str) -> Value:
        """An input of the graph that is a resource handle."""
        return self.op("Placeholder", [], name, dtype=RESOURCE, shape=())

    def reshape(self, value: Value, shape: Sequence[int], name: str) -> Value:
        """`value` under another shape; shares its buffer."""
        return self.op("Reshape", [value, self.constant(list(shape), INT64)], name)

    def flat(self, value: Value, name: str) -> Value:
        """The elements of `value` as a vector, in row-major order; shares its buffer."""
        return self.reshape(value, (-1,), name)

    def cast(self, value: Value, dtype: int, name: str) -> Value:
        """`value` in an element type."""
        return value if self.dtype(value) == dtype else self.op("Cast", [value], name, DstT=dtype)

    def run(self, vector: Value, start: int, stop: int, name: str) -> Value:
        """Elements `start` to `stop` of a vector; shares its buffer where `start` is aligned."""
        begin, size = self.constant([start], INT64), self.constant([stop - start], INT64)
        return self.op("Slice", [vector, begin, size], name)

    def block(self, value: Value, begin: Sequence[int], size: Sequence[int], name: str) -> Value:
        """The part of a tensor that begins at `begin` and has shape `size`."""
        return self.op(
            "Slice", [value, self.constant(list(begin)), self.constant(list(size))], name
        )

    def concat(self, tensors: Sequence[Value], name: str) -> Value:
        """Tensors one after the other, along the first dimension."""
        if len(tensors) == 1:
            return tensors[0]
        return self.op("ConcatV2", [*tensors, self.constant(0)], name)

    def split(self, value: Value, sizes: Sequence[int], name: str, axis: int = 0) -> list[Value]:
        """A tensor cut along one dimension into parts of sizes that add up to it."""
        if len(sizes) == 1:
            return [value]
        inputs = [value, self.constant(list(sizes), INT64), self.constant(axis)]
        cut = self.op("SplitV", inputs, name, num_split=len(sizes))
        return [Value(cut.op, index) for index in range(len(sizes))]

    def transpose(self, value: Value, order: Sequence[int], name: str) -> Value:
        """A tensor with its dimensions in another order."""
        if list(order) == list(range(len(order))):
            return value
        return self.op("Transpose", [value, self.constant(list(order))], name)

    def ordered_sum(self, terms: Sequence[Value], name: str) -> Value:
        """((t0 + t1) + t2) + ..., rounded after every addition.

        By additions of two: AddN puts in front whichever operand's buffer it may reuse, and which
        that is depends on who else has finished with it (aggregate_ops.cc).
        """
        total = terms[0]
        for term in terms[1:]:
            total = self.in_order("AddV2", [total, term], name)
        return total

    def in_order(
        self,
        op_type: str,
        inputs: Sequence[Value],
        name: str = "",
        *,
        controls: Iterable[str] = (),
    ) -> Value:
        """Adds an op, named as its type by default, that Grappler merges with no neighbour."""
        made = self.op(op_type, inputs, name or op_type, controls=controls)
        self.builder.nodes[-1].attr[KEEP_ORDER].b = True
        return made

    def kept(self, value: Value, name: str, *, controls: Iterable[str]) -> Value:
        """Adds an Identity that waits; Grappler does not have those wait that take its value."""
        made = self.op("Identity", [value], name, controls=controls)
        self.builder.nodes[-1].attr[KEEP].b = True
        return made

    def _full(self, name: str) -> str:
        return f"{self.scope}/{name}" if self.scope and name else self.scope or name


def result_types(node: Any) -> list[int]:
    """The element types of what a NodeDef yields, as DataType numbers."""
    return _signature(node.op).result_types(node.attr)


@functools.cache
def _signature(op_type: str) -> Signature:
    definition = op_def(op_type)
    if definition is None:
        raise WuShardError(f"TensorFlow knows no op {op_type}")
    return Signature.of(definition)
