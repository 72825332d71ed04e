"""A read-only view of one graph: ops, edges, variables, what must stay alive.

Made alike from a live FuncGraph or any GraphDef (`step.capture`), so that nothing after it knows
where the graph came from. This module reads a GraphDef by duck typing and imports no TensorFlow.
It does not know what the ops mean; that is the work of `rules`.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import hashlib
import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tf_wu_shard.errors import WuShardError
from tf_wu_shard.graph import constants
from tf_wu_shard.graph.attributes import Signature
from tf_wu_shard.graph.dimensions import Dims
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.ordering import ordered_ops
from tf_wu_shard.graph.shape_inference import ShapeInference

# Stateful in TensorFlow's registry, for what they read or name; they change nothing.
_EFFECT_FREE = frozenset({"ReadVariableOp", "VarHandleOp", "VariableShape", "ResourceGather"})


@dataclasses.dataclass(frozen=True)
class VariableRef:
    """The resource handle of one replica's component of a variable.

    Attributes:
        key: Names the logical variable, the same for all its components; unique in the view.
        replica: Which component this handle is.
        num_replicas: How many components the variable has (1: not distributed).
        shape: The logical shape.
        dtype: The DataType enum's number.
        mirrored: Whether the components hold the same value by contract. False for a variable
            that each replica writes on its own (ON_READ).
        device: The device the component lives on.
        trainable: Whether the model trains it; an optimizer's own variables are not trainable.
        replicas_elsewhere: How many replicas in other processes have a component of theirs.
        name: What users call it; the key where nothing else is known.
    """

    key: str
    replica: int
    num_replicas: int
    shape: tuple[int, ...] | None
    dtype: int
    mirrored: bool
    device: str
    trainable: bool = False
    replicas_elsewhere: int = 0
    name: str = ""


class GraphView:
    """A graph, indexed for reading.

    Attributes:
        ops: All ops by name, each after its inputs.
        variables: What is known of a resource handle, by the name of the op that yields it.
        outputs: The values that the graph returns.
        control_outputs: Names of the ops that must run.
        op_def: The OpDef of an op type, or None where TensorFlow does not know it.
        functions: The FunctionDefs that ops may call, by name.
        own_inputs: Names of inputs of which each replica has a value of its own.
        part_wise: For ops, by name, that call functions which do to each part of some variables
            what they do to the whole: for each such variable, by key, those that meet in it.
        constants: The TensorProtos of inputs that are constants outside, by name.
    """

    def __init__(
        self,
        graph_def: Any,
        *,
        variables: Mapping[str, VariableRef],
        outputs: Iterable[Value],
        control_outputs: Iterable[str],
        op_def: Callable[[str], Any | None],
        shape_of: Callable[[Value], Dims | None] | None = None,
    ) -> None:
        self.graph_def = graph_def
        self.ops: dict[str, Op] = {op.name: op for op in ordered_ops(graph_def.node)}
        self.variables = dict(variables)
        self.outputs = tuple(outputs)
        self.control_outputs = tuple(control_outputs)
        self.op_def = functools.cache(op_def)
        self._is_stateful = functools.cache(lambda op_type: _is_stateful(op_def(op_type)))
        self._signature = functools.cache(lambda op_type: Signature.known(op_def(op_type)))
        self._shape_of = shape_of
        self._given: dict[Value, tuple[int, ...]] = {}
        self._shapes: dict[Value, tuple[int, ...] | None] = {}
        self.functions = {f.signature.name: f for f in graph_def.library.function}
        self.own_inputs: frozenset[str] = frozenset()
        self.part_wise: dict[str, Mapping[str, frozenset[str]]] = {}
        self.constants: Mapping[str, Any] = {}
        self._by_position = list(self.ops.values())

    def with_part_wise(self, part_wise: Mapping[str, Mapping[str, frozenset[str]]]) -> GraphView:
        """The same view, in which more is known of some ops."""
        found = copy.copy(self)
        found.part_wise = dict(part_wise)
        return found

    def with_inputs(self, own: Iterable[str], constants: Mapping[str, Any]) -> GraphView:
        """The same view, in which more is known of inputs; see `own_inputs` and `constants`."""
        found = copy.copy(self)
        found.own_inputs, found.constants = frozenset(own), constants
        return found._with_shapes_open()

    def with_variables(self, variables: Mapping[str, VariableRef]) -> GraphView:
        """The same view, in which other things are known of handles."""
        found = copy.copy(self)
        found.variables = dict(variables)
        return found

    def with_shapes(self, shapes: Mapping[Value, tuple[int, ...]]) -> GraphView:
        """The same view, in which some values have shapes that the graph does not prove."""
        if not shapes:
            return self
        found = copy.copy(self)
        found._given = {**self._given, **shapes}
        return found._with_shapes_open()

    def _with_shapes_open(self) -> GraphView:
        """This view, once what shapes follow from was changed."""
        self._shapes = {}
        self.__dict__.pop("_inference", None)
        return self

    def with_graph(
        self,
        graph_def: Any,
        shape_of: Callable[[Value], Dims | None] = lambda value: None,
        outputs: Iterable[Value] | None = None,
        control_outputs: Iterable[str] | None = None,
    ) -> GraphView:
        """The same view of a graph of other nodes, in which inputs and handles have their names.

        Args:
            graph_def: The graph.
            shape_of: The dimensions of what the ops yield that this view does not have.
            outputs: What it returns; None for the same.
            control_outputs: Names of the ops that must run; None for the same.
        """
        found = GraphView(
            graph_def,
            variables=self.variables,
            outputs=self.outputs if outputs is None else outputs,
            control_outputs=self.control_outputs if control_outputs is None else control_outputs,
            op_def=self.op_def,
            shape_of=lambda v: self.stated(v) if v.op in self.ops else shape_of(v),
        )
        found.part_wise = self.part_wise
        return found.with_inputs(self.own_inputs, self.constants)

    @functools.cached_property
    def _consumers(self) -> dict[Value, list[tuple[Op, int]]]:
        found: dict[Value, list[tuple[Op, int]]] = {}
        for op in self._by_position:
            if op.name in self.live:
                for slot, value in enumerate(op.inputs):
                    found.setdefault(value, []).append((op, slot))
        return found

    @functools.cached_property
    def _by_type(self) -> dict[str, list[Op]]:
        found: dict[str, list[Op]] = {}
        for op in self._by_position:
            found.setdefault(op.type, []).append(op)
        return found

    def of_types(self, *types: str) -> list[Op]:
        """The ops of some types, in their order; much faster than to look at every op."""
        found = [op for one in {*types} for op in self._by_type.get(one, ())]
        return found if len(types) == 1 else sorted(found, key=lambda op: op.position)

    @functools.cached_property
    def effects(self) -> frozenset[str]:
        """Names of the ops that may change something, so that they run though nobody reads them."""
        kinds = (t for t in self._by_type if t not in _EFFECT_FREE and self.is_stateful(t))
        return frozenset(op.name for kind in kinds for op in self._by_type[kind])

    @functools.cached_property
    def fingerprint(self) -> str:
        """A digest of the graph; equal for byte-identical graphs."""
        data = self.graph_def.SerializeToString(deterministic=True)
        return hashlib.sha256(data).hexdigest()[:16]

    @functools.cached_property
    def live(self) -> frozenset[str]:
        """Names of the ops whose result or effect can be seen from outside the graph."""
        found = {*(value.op for value in self.outputs), *self.control_outputs, *self.effects}
        # Whatever needs an op comes after it.
        for op in reversed(self._by_position):
            if op.name in found:
                found.update(op.controls)
                for value in op.inputs:
                    found.add(value.op)
        return frozenset(found)

    def __iter__(self) -> Iterator[Op]:
        return iter(self._by_position)

    def producer(self, value: Value) -> Op:
        """The op that computes `value`."""
        return self.ops[value.op]

    def unbundled(self, value: Value, known: Container[Value] = ()) -> Value:
        """What a value is where IdentityNs pass it on beside others.

        Args:
            value: The value.
            known: What is taken as it is, whatever passes it on.
        """
        while value not in known and (op := self.producer(value)).passes_each_on:
            value = op.inputs[value.index]
        return value

    def consumers(self, value: Value) -> list[tuple[Op, int]]:
        """The live ops that read `value`, each with the number of the input it enters by."""
        return self._consumers.get(value, [])

    def stated(self, value: Value) -> Dims | None:
        """The dimensions that TensorFlow inferred of `value`, None for those that it left open."""
        if value in self._given:
            return self._given[value]
        if self._shape_of is not None:
            return self._shape_of(value)
        shapes = self.ops[value.op].attribute("_output_shapes").list.shape
        if value.index >= len(shapes) or shapes[value.index].unknown_rank:
            return None
        return tuple(d.size if d.size >= 0 else None for d in shapes[value.index].dim)

    def shape(self, value: Value) -> tuple[int, ...] | None:
        """The shape that the graph proves `value` to have, or None where a part of it is open."""
        if value not in self._shapes:
            dims = self.stated(value)
            if dims is None or None in dims:
                dims = self._inference.shape(value)
            # The comprehension repeats the test for the type checker.
            known = tuple(d for d in dims or () if d is not None)
            self._shapes[value] = None if dims is None or len(known) < len(dims) else known
        return self._shapes[value]

    @functools.cached_property
    def _inference(self) -> ShapeInference:
        return ShapeInference(self.ops.__getitem__, self.stated, self.constant)

    def may_have_several(self, value: Value) -> bool:
        """Whether a value may have several elements."""
        shape = self.shape(value)
        return shape is None or math.prod(shape) > 1

    def constant(self, value: Value) -> Any | None:
        """The TensorProto of a Const, or of an input that is one outside; None of all else."""
        op = self.ops[value.op]
        return op.attribute("value").tensor if op.type == "Const" else self.constants.get(op.name)

    def integers(self, value: Value) -> tuple[int, ...] | None:
        """The elements of a constant of type int32 or int64, or None of what is not known."""
        return constants.integers(self.constant(value))

    def floating_scalar(self, value: Value) -> float | None:
        """The one element of a constant of a floating type, or None of anything else."""
        return constants.floating_scalar(self.constant(value))

    def source(self, value: Value) -> Op:
        """The op that computes `value`, past Identities."""
        op = self.ops[value.op]
        while op.type == "Identity":
            op = self.ops[op.inputs[0].op]
        return op

    def is_stateful(self, op_type: str) -> bool:
        """Whether running an op of this type twice may differ from running it once."""
        return self._is_stateful(op_type)

    def dtype(self, value: Value) -> int:
        """The element type of `value`, as a DataType number.

        Raises:
            WuShardError: If TensorFlow does not know the op.
        """
        return self._result_types(self.ops[value.op])[value.index]

    def results(self, name: str) -> tuple[Value, ...]:
        """All values that an op yields.

        Raises:
            WuShardError: If TensorFlow does not know the op.
        """
        count = len(self._result_types(self.ops[name]))
        return tuple(Value(name, index) for index in range(count))

    def _result_types(self, op: Op) -> list[int]:
        signature = self._signature(op.type)
        if signature is None:
            raise WuShardError(f"op {op.name!r} is of a type unknown to TensorFlow: {op.type}")
        return signature.result_types(op.node.attr)

    def first_unordered(self, earlier: Sequence[Op], later: Op) -> Op | None:
        """The first of some ops that not every run executes before `later`, or None.

        Args:
            earlier: Ops that come before `later` in the order of the graph.
            later: The op; what it waits for is followed by data and control edges.
        """
        waiting = {op.name for op in earlier}
        first = min((op.position for op in earlier), default=later.position)
        # What orders accesses is mostly a control edge or a few; data goes back to the inputs.
        near, far = collections.deque([later]), collections.deque[Op]()
        seen = {later.name}
        while (near or far) and waiting:
            op = (near or far).popleft()
            sources = (value.op for value in op.inputs)
            for queue, names in ((near, op.controls), (far, sources)):
                for name in names:
                    if name not in seen and self.ops[name].position >= first:
                        seen.add(name)
                        waiting.discard(name)
                        queue.append(self.ops[name])
        return next((op for op in earlier if op.name in waiting), None)


def _is_stateful(definition: Any | None) -> bool:
    """Whether an OpDef says that runs of the op differ; of an op that is not known they may."""
    return definition is None or bool(definition.is_stateful)
