"""Steps of two replicas made of raw ops, and what it takes to emit their updates on shards."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.op import Value, parse_value
from tf_wu_shard.graph.view import GraphView, VariableRef
from tf_wu_shard.grounds.in_process.collectives import InProcess
from tf_wu_shard.replicas import in_this_process
from tf_wu_shard.tensorflow_private import function_graph
from tf_wu_shard.weight_update.analysis.analyze import analyze
from tf_wu_shard.weight_update.analysis.types import Analysis, WeightUpdate
from tf_wu_shard.weight_update.rewrite.emission import Emission

DEVICES = tuple(f"/job:localhost/replica:0/task:0/device:CPU:{r}" for r in range(2))


@dataclasses.dataclass(frozen=True)
class Copy:
    """One replica's copy of a step.

    Attributes:
        number: The replica's.
        handles: The handles of its components, by key.
        total: Its reduced gradient; of a sparse one, the values of the entries.
        rows: Of a sparse one, the numbers of their rows.
    """

    number: int
    handles: Mapping[str, Any]
    total: Any
    rows: Any = None

    def named(self, name: str) -> str:
        """The name of one of its ops."""
        return f"{name}{self.number}"

    def read(self, key: str, name: str, after: Sequence[Any] = ()) -> Any:
        """A read of a variable."""
        with tf.control_dependencies([*after]):
            return tf.raw_ops.ReadVariableOp(
                resource=self.handles[key], dtype=tf.float32, name=self.named(name)
            )

    def write(self, kind: str, key: str, value: Any, name: str, after: Sequence[Any] = ()) -> Any:
        """A write of a variable, kind being Assign, AssignAdd or AssignSub."""
        with tf.control_dependencies([*after]):
            op = getattr(tf.raw_ops, f"{kind}VariableOp")
            return op(resource=self.handles[key], value=value, name=self.named(name))

    def scatter(self, kind: str, key: str, name: str, after: Sequence[Any] = ()) -> Any:
        """A write of the rows that the entries name, kind being Add, Sub or Update."""
        with tf.control_dependencies([*after]):
            op = getattr(tf.raw_ops, f"ResourceScatter{kind}")
            handle = self.handles[key]
            return op(resource=handle, indices=self.rows, updates=self.total, name=self.named(name))


# The rest of a step, on one replica.
Replica = Callable[[Copy], None]


@dataclasses.dataclass(frozen=True)
class RawStep:
    """A step and what the analysis finds in it.

    Attributes:
        view: The graph.
        analysis: What is in it.
        emission: Where its updates may be emitted.
    """

    view: GraphView
    analysis: Analysis
    emission: Emission

    @property
    def update(self) -> WeightUpdate:
        """The one update."""
        (update,) = self.analysis.updates
        return update

    def with_shards_of(self, *keys: str) -> RawStep:
        """The same step, once there are handles of the shards of these variables."""
        for key in keys:
            at = self.emission.builder.at
            self.emission.handles[key] = [
                at("", f"{key}_shard{number}").handle_input("") for number in range(len(DEVICES))
            ]
        return self

    def of_each(self, name: str, dtype: tf.DType = tf.float32) -> list[Value]:
        """Values that are there, one on each replica."""
        note = self.emission.builder.note
        number = dtype.as_datatype_enum
        return [note(Value(f"{name}{replica}"), number) for replica in range(len(DEVICES))]

    @property
    def new(self) -> dict[str, Any]:
        """The NodeDefs that were emitted, by name."""
        return {node.name: node for node in self.emission.builder.nodes}

    def constant(self, name: str) -> Any:
        """The elements of an emitted constant."""
        return tf.make_ndarray(self.new[name].attr["value"].tensor).tolist()


def dense_step(
    replica: Replica,
    shapes: Mapping[str, tuple[int, ...]],
    trainable: Sequence[str] = ("w",),
    outputs: Sequence[str] = (),
    controls: Sequence[str] = (),
) -> RawStep:
    """A step with one gradient, of the first variable's shape, which the replicas add up."""
    shape = next(iter(shapes.values()))
    with tf.Graph().as_default() as graph:
        for number, device in enumerate(DEVICES):
            with tf.device(device):
                total = tf.raw_ops.CollectiveReduceV2(
                    input=tf.compat.v1.placeholder(tf.float32, shape, f"g{number}"),
                    group_size=tf.constant(2, name=f"size{number}"),
                    group_key=tf.constant(1, name=f"group{number}"),
                    instance_key=tf.constant(1, name=f"instance{number}"),
                    ordering_token=[],
                    merge_op="Add",
                    final_op="Id",
                    name=f"sum{number}",
                )
                replica(Copy(number, _handles(number, shapes), total))
    return _step(graph, shapes, trainable, outputs, controls)


def sparse_step(replica: Replica, shapes: Mapping[str, tuple[int, ...]]) -> RawStep:
    """A step with one sparse gradient, two entries of each replica, of the first variable."""
    row = next(iter(shapes.values()))[1:]
    with tf.Graph().as_default() as graph:
        values, rows = [], []
        for number, device in enumerate(DEVICES):
            with tf.device(device):
                own = tf.compat.v1.placeholder(tf.float32, (2, *row), f"x{number}")
                values.append(tf.square(own, name=f"v{number}"))
                rows.append(tf.compat.v1.placeholder(tf.int64, (2,), f"i{number}"))
        with tf.device(DEVICES[0]):
            all_values, all_rows = tf.concat(values, 0, "allv"), tf.concat(rows, 0, "alli")
        for number, device in enumerate(DEVICES):
            with tf.device(device):
                own = tf.identity(all_values, f"values{number}")
                numbers = tf.identity(all_rows, f"rows{number}")
                replica(Copy(number, _handles(number, shapes), own, numbers))
    return _step(graph, shapes)


def _handles(number: int, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    return {
        key: tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=shape, name=f"{key}{number}")
        for key, shape in shapes.items()
    }


def _step(
    graph: tf.Graph,
    shapes: Mapping[str, tuple[int, ...]],
    trainable: Sequence[str] = ("w",),
    outputs: Sequence[str] = (),
    controls: Sequence[str] = (),
) -> RawStep:
    dtype = tf.float32.as_datatype_enum
    refs = {
        f"{key}{number}": VariableRef(
            key, number, len(DEVICES), shape, dtype, True, device, key in trainable
        )
        for key, shape in shapes.items()
        for number, device in enumerate(DEVICES)
    }
    view = GraphView(
        graph.as_graph_def(add_shapes=True),
        variables=refs,
        outputs=[parse_value(output) for output in outputs],
        control_outputs=controls,
        op_def=function_graph.op_def,
    )
    dialect = InProcess(in_this_process(DEVICES))
    none: Any = None
    emission = Emission(view, GraphBuilder(view.ops, view.dtype), dialect, none)
    return RawStep(view, analyze(view, dialect), emission)
