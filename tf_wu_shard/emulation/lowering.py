"""A function that runs on TPU replicas, turned into one that runs on as many other devices.

Answers: what a FunctionDef with TPU clusters becomes. In it every op of a cluster stands once for
each replica, and what the replicas exchange goes through plain ops between them. The function keeps
its name, arguments and results. It does not know where the definition came from or goes to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tf_wu_shard.emulation import attributes, exchange, local_ops
from tf_wu_shard.emulation.arrival import wait_for_inputs
from tf_wu_shard.emulation.calls import COMPILED, Calls, Find, is_seeded
from tf_wu_shard.emulation.clones import Clones, replicas_on
from tf_wu_shard.errors import EmulationError
from tf_wu_shard.graph.calls import named_by
from tf_wu_shard.graph.nodes import copy_of, sources_of
from tf_wu_shard.tensorflow_private.kernels import has_cpu_kernel

_METADATA = "TPUReplicateMetadata"
_INPUT = "TPUReplicatedInput"
_OUTPUT = "TPUReplicatedOutput"

# The attribute of a NoOp that a cluster comes after, as what comes before a TPU program does.
_PIVOT = "_pivot_for_cluster"

# The attribute of a function that a dataset runs.
_OF_DATASET = "_tf_data_function"

# Replicas that draw from a seed of an op's own draw different numbers, as TPU cores do; a stride
# that is prime keeps them from meeting those of an op whose seed is a few steps away.
_SEED_STRIDE = 1_000_003


class Lowered(NamedTuple):
    """What a function became.

    Attributes:
        definition: The new FunctionDef, of the same name, arguments and results.
        added: FunctionDefs that it calls and the old one did not.
    """

    definition: Any
    added: tuple[Any, ...]


def has_cluster(op_types: Iterable[str]) -> bool:
    """Whether a graph with ops of these types holds a TPU cluster."""
    return _METADATA in op_types


def lower(definition: Any, find: Find, devices_of: Callable[[int], Sequence[str]]) -> Lowered:
    """Turns a function's TPU clusters into copies side by side.

    A function without a cluster that calls one with a cluster is lowered too: it is no longer
    compiled as one program (`jit_compile=True`), which could not span several devices, nor kept
    from being inlined, as TensorFlow hands a packed handle whole only to functions that are.

    Args:
        definition: Its FunctionDef.
        find: The FunctionDef of any function that it calls, or None where there is none.
        devices_of: The devices that so many replicas run on.

    Returns:
        What runs without a TPU.

    Raises:
        EmulationError: The function holds something that only a TPU can do.
    """
    if _OF_DATASET in definition.attr:
        raise EmulationError(
            f"a dataset runs {definition.signature.name!r}, which runs a TPU program: a TPU's host"
            " cannot do so; loop over a distributed dataset, or over tf.range with an iterator"
        )
    return _Lowering(definition, find, devices_of).lowered()


class _Lowering:
    def __init__(
        self, definition: Any, find: Find, devices_of: Callable[[int], Sequence[str]]
    ) -> None:
        self._old = definition
        self._find = find
        self._devices_of = devices_of
        self._nodes = {node.name: node for node in definition.node_def}
        self._clusters: dict[str, dict[str, Any]] = {}
        for node in definition.node_def:
            if "_tpu_replicate" in node.attr:
                cluster = node.attr["_tpu_replicate"].s.decode()
                self._clusters.setdefault(cluster, {})[node.name] = node
        self._clones: dict[str, Clones] = {}
        self._added: list[Any] = []
        self._cluster_of = {name: key for key, nodes in self._clusters.items() for name in nodes}
        self._new: list[Any] = []

    def lowered(self) -> Lowered:
        for cluster in self._clusters:
            self._clones_of(cluster)
        for node in self._old.node_def:
            if node.name not in self._cluster_of and node.op not in (_INPUT, _OUTPUT):
                self._new.append(self._outside_node(node))
        new = type(self._old)()
        new.CopyFrom(self._old)
        del new.node_def[:]
        new.node_def.extend(self._new)
        for key, value in self._old.ret.items():
            new.ret[key] = self._seen_from_outside(value, f"the result {key!r}")
        new.control_ret.clear()
        del new.signature.control_output[:]
        for key, op in self._old.control_ret.items():
            for place, name in enumerate(self._waits(op)):
                new.control_ret[f"{key}_{place}"] = name
                new.signature.control_output.append(f"{key}_{place}")
        for key in (COMPILED, "_noinline"):
            new.attr.pop(key, None)
        return Lowered(new, tuple(self._added))

    def _clones_of(self, cluster: str) -> Clones:
        """A cluster's copies, made when first asked for: clusters read from each other."""
        if cluster not in self._clones:
            self._clone(cluster, self._clusters[cluster])
        return self._clones[cluster]

    def _clone(self, cluster: str, nodes: dict[str, Any]) -> None:
        metadata = _metadata(cluster, nodes)
        devices = self._devices_of(metadata.attr["num_replicas"].i)
        program = {name: node for name, node in nodes.items() if node is not metadata}
        inputs = _Inputs(self, devices)
        clones = Clones(program, replicas_on(devices), inputs.values, self._nodes, self._waits)
        number = len(self._clones)
        self._clones[cluster] = clones
        inputs.clones = clones
        calls = Calls(devices, self._find, emit, f"{self._old.signature.name}_{number}")
        emit(clones, program.values(), calls)
        wait_for_inputs(clones, inputs.entering, self._nodes, cluster)
        self._new += clones.nodes
        self._added += calls.added

    def _outside_node(self, node: Any) -> Any:
        """A node outside of all clusters, reading what it read before."""
        if node.op == "TPUCompilationResult":
            return _compiled(node)
        new = copy_of(node)
        del new.input[:]
        for text in node.input:
            if text[0] == "^":
                new.input.extend(f"^{name}" for name in self._waits(text[1:]))
            else:
                new.input.append(self._seen_from_outside(text, f"{node.op} {node.name!r}"))
        new.attr.pop("_class", None)
        return new

    def _waits(self, name: str) -> list[str]:
        """The ops to wait for in the place of one of the old function."""
        node = self._nodes.get(name)
        if node is None:
            return []
        if node.op in (_INPUT, _OUTPUT, _METADATA) or _PIVOT in node.attr:
            # These do nothing here. What waits for them waits for what they come after.
            return [op for source in dict.fromkeys(sources_of(node)) for op in self._waits(source)]
        if name in self._cluster_of:
            return self._clones_of(self._cluster_of[name]).waits(name)
        return [name]

    def _seen_from_outside(self, tensor: str, reader: str) -> str:
        """A tensor, as something outside of the clusters reads it."""
        name, _, output = tensor.partition(":")
        node = self._nodes.get(name)
        if node is not None and node.op == _OUTPUT:
            source = node.input[0]
            replica = int(output.rpartition(":")[2])
            cluster = self._cluster_of.get(source.partition(":")[0])
            if cluster is None:
                return self._seen_from_outside(source, reader)
            return self._clones_of(cluster).values(source)[replica]
        if name in self._cluster_of or (node is not None and node.op == _INPUT):
            raise EmulationError(
                f"{reader} cannot be emulated: it reads {name!r} of a TPU cluster without being"
                " part of it"
            )
        return tensor

    def node(self, name: str) -> Any | None:
        """A node of the old function, or None."""
        return self._nodes.get(name)

    def for_replicas(self, text: str, count: int) -> list[str]:
        """A tensor from outside of a cluster, as each of its replicas reads it."""
        return [self._seen_from_outside(text, "a TPU cluster")] * count


class _Inputs:
    """What enters a cluster: values that each replica has of its own, handles, and shared ones."""

    clones: Clones

    def __init__(self, lowering: _Lowering, devices: Sequence[str]) -> None:
        self._lowering = lowering
        self._devices = devices
        self._known: dict[str, list[str]] = {}

    def values(self, tensor: str) -> list[str]:
        """What stands for a tensor in each replica."""
        if tensor not in self._known:
            self._known[tensor] = self._find(tensor)
        return self._known[tensor]

    @property
    def entering(self) -> list[list[str]]:
        """For each tensor that the copies take from outside, what it is in each replica."""
        return list(self._known.values())

    def _find(self, tensor: str) -> list[str]:
        node = self._lowering.node(tensor.partition(":")[0])
        count = len(self._devices)
        if node is None or node.op != _INPUT:
            return self._lowering.for_replicas(tensor, count)
        given = [text for text in node.input if text[0] != "^"]
        if not node.attr["is_packed"].b:
            return [self._lowering.for_replicas(text, 1)[0] for text in given]
        return [self._unpacked(node, given[0], replica) for replica in range(count)]

    def _unpacked(self, node: Any, handle: str, replica: int) -> str:
        """A replica's component of a packed handle: what an op on its device sees of it."""
        copy = self.clones.replicas[replica]
        name = copy.prefix + node.name
        self.clones.add("Identity", name, [handle], copy.device, attrs={"T": node.attr["T"]})
        return f"{name}:output:0"


def emit(clones: Clones, nodes: Iterable[Any], calls: Calls) -> None:
    """Adds copies of a TPU program's nodes.

    Args:
        clones: Whom to copy them for, and where the copies go.
        nodes: NodeDefs of the program.
        calls: The functions that they call.

    Raises:
        EmulationError: One of them does what only a TPU can do.
    """
    nodes = list(nodes)
    joint = {node.name for node in nodes if calls.exchanges(node)}
    for node in nodes:
        if node.name in joint:
            calls.declare_joint(clones, node)
        elif node.op in local_ops.RESULTS:
            theirs, ours = local_ops.RESULTS[node.op]
            copies = [f"{replica.prefix}{node.name}:{ours}:0" for replica in clones.replicas]
            clones.stand_for(f"{node.name}:{theirs}:0", copies)
    for node in nodes:
        if node.op in exchange.COLLECTIVES:
            exchange.emulate(clones, node)
        elif node.op in local_ops.LOCAL_OPS:
            local_ops.LOCAL_OPS[node.op](clones, node)
        elif node.name in joint:
            calls.call_joint(clones, node)
        elif calls.is_direct(node):
            clones.copy(node)
        elif any(named_by(node)):
            _check_kernel(node)
            calls.call_for_each(clones, node)
        else:
            _check_kernel(node)
            clones.copy(node, _seeds(clones, node) if is_seeded(node) else None)


def _check_kernel(node: Any) -> None:
    if not has_cpu_kernel(node.op):
        raise EmulationError(
            f"{node.op} {node.name!r} cannot be emulated: it runs only on a TPU; take it out of"
            " the function given to strategy.run to debug the rest"
        )


def _seeds(clones: Clones, node: Any) -> list[Mapping[str, Any]]:
    first = node.attr["seed2"].i
    return [
        {"seed2": attributes.integer(first + replica.number * _SEED_STRIDE)}
        for replica in clones.replicas
    ]


def _metadata(cluster: str, nodes: Mapping[str, Any]) -> Any:
    """A cluster's TPUReplicateMetadata.

    Raises:
        EmulationError: There is none, or a replica spreads over several cores.
    """
    found = next((node for node in nodes.values() if node.op == _METADATA), None)
    if found is None:
        raise EmulationError(f"the TPU cluster {cluster!r} has no {_METADATA} that says its size")
    cores = found.attr["num_cores_per_replica"].i
    if cores > 1:
        raise EmulationError(
            f"the TPU cluster {cluster!r} cannot be emulated: each replica spreads over {cores}"
            " cores; use a device assignment with num_cores_per_replica=1"
        )
    return found


def _compiled(node: Any) -> Any:
    """Says that compiling went well: the empty CompilationResultProto."""
    value = np.array(b"")
    new = tf.compat.v1.NodeDef(name=node.name, op="Const")
    new.attr["dtype"].type = tf.string.as_datatype_enum
    new.attr["value"].CopyFrom(attributes.tensor(value))
    return new
