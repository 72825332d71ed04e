"""Copies of a piece of a TPU program, one for each replica, side by side in one function.

Answers: which tensors and ops stand for a tensor or an op of the program in each replica. Tensors
are named as a FunctionDef names them: "argument", or "node:output:index". What an op that
concerns several replicas becomes is not known here; see `exchange` and `calls`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tf_wu_shard.errors import EmulationError
from tf_wu_shard.graph.nodes import copy_of

_NodeDef = tf.compat.v1.NodeDef

# Attributes that only say where an op stood or what Python knew of it: its colocation, the cluster
# it belonged to, the gradient that was registered for it.
_DROPPED = (
    "_class",
    "_gradient_op_type",
    "_has_manual_control_dependencies",
    "_post_device_rewrite",
    "_tpu_input_identity",
    "_tpu_output_identity",
    "_tpu_replicate",
    "_xla_map_outside_compilation",
    "_xla_outside_compilation",
)

# Ops that exist once for all replicas stand under this scope.
SHARED_SCOPE = "all_replicas/"


class Replica(NamedTuple):
    """One replica that a program is copied for.

    Attributes:
        number: Which one it is in its replica group.
        device: Where its ops run; "" for wherever the function is called.
        prefix: What its ops' names begin with.
    """

    number: int
    device: str
    prefix: str


def replicas_on(devices: Sequence[str]) -> tuple[Replica, ...]:
    """One replica for each device."""
    return tuple(Replica(i, device, f"replica_{i}/") for i, device in enumerate(devices))


class Clones:
    """The copies of some nodes.

    Attributes:
        replicas: Whom they are copied for.
        nodes: The nodes made so far.
    """

    def __init__(
        self,
        program: Mapping[str, Any],
        replicas: Sequence[Replica],
        outside: Callable[[str], Sequence[str]],
        constants: Mapping[str, Any],
        outside_ops: Callable[[str], Sequence[str]] = lambda name: (name,),
    ) -> None:
        """Starts with no copy made.

        Args:
            program: The NodeDefs to copy, by name.
            replicas: Whom to copy them for.
            outside: For a tensor that none of them computes, what stands for it in each replica.
            constants: NodeDefs by name, of the program and around it, to look constants up in.
            outside_ops: For an op that is none of them, what every replica waits for in its place.
        """
        self.replicas = tuple(replicas)
        self.nodes: list[Any] = []
        self._program = program
        self._outside = outside
        self._constants = constants
        self._outside_ops = outside_ops
        self._values: dict[str, Sequence[str]] = {}
        self._ops: dict[str, Sequence[str]] = {}

    def stand_for(self, tensor: str, values: Sequence[str]) -> None:
        """Says what a tensor of the program is in each replica, other than its op's copy's."""
        self._values[tensor] = values

    def stand_for_op(self, name: str, ops: Sequence[str]) -> None:
        """Says which op of each replica is waited for in the place of one of the program."""
        self._ops[name] = ops

    def values(self, tensor: str) -> Sequence[str]:
        """What a tensor of the program is in each replica."""
        known = self._values.get(tensor)
        if known is not None:
            return known
        if tensor.partition(":")[0] in self._program:
            return [f"{replica.prefix}{tensor}" for replica in self.replicas]
        return self._outside(tensor)

    def waits(self, name: str) -> list[str]:
        """The ops of all replicas to wait for in the place of the program's op `name`."""
        return list(dict.fromkeys(op for ops in self._waits_of_each(name) for op in ops))

    def _waits_of_each(self, name: str) -> list[Sequence[str]]:
        known = self._ops.get(name)
        if known is not None:
            return [(op,) for op in known]
        if name in self._program:
            return [(f"{replica.prefix}{name}",) for replica in self.replicas]
        return [self._outside_ops(name)] * len(self.replicas)

    def inputs(self, node: Any) -> list[list[str]]:
        """A node's inputs in each replica, control inputs last."""
        rows: list[list[str]] = [[] for _ in self.replicas]
        for text in node.input:
            if text[0] == "^":
                for row, ops in zip(rows, self._waits_of_each(text[1:]), strict=True):
                    row.extend(f"^{op}" for op in ops)
            else:
                for row, value in zip(rows, self.values(text), strict=True):
                    row.append(value)
        return rows

    def copy(self, node: Any, changes: Sequence[Mapping[str, Any]] | None = None) -> None:
        """Adds a node's copy for each replica.

        Args:
            node: A NodeDef of the program.
            changes: For each replica, attributes (AttrValues) that are other than the node's.
        """
        template = copy_of(node)
        del template.input[:]
        for key in _DROPPED:
            template.attr.pop(key, None)
        for index, (replica, inputs) in enumerate(
            zip(self.replicas, self.inputs(node), strict=True)
        ):
            clone = copy_of(template)
            clone.name = replica.prefix + node.name
            clone.device = replica.device
            clone.input.extend(inputs)
            if changes is not None:
                for key, value in changes[index].items():
                    clone.attr[key].CopyFrom(value)
            self.nodes.append(clone)

    def add(
        self,
        op_type: str,
        name: str,
        inputs: Sequence[str],
        device: str,
        *,
        controls: Iterable[str] = (),
        attrs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Adds a node that the program has no counterpart of.

        Args:
            op_type: Its type.
            name: Its name, unique.
            inputs: Its data inputs.
            device: Where it runs.
            controls: Names of the ops it waits for.
            attrs: Its attributes, as AttrValues.

        Returns:
            The NodeDef.
        """
        node = _NodeDef(name=name, op=op_type, device=device)
        node.input.extend([*inputs, *(f"^{op}" for op in dict.fromkeys(controls))])
        for key, value in (attrs or {}).items():
            node.attr[key].CopyFrom(value)
        self.nodes.append(node)
        return node

    def constant(self, node: Any, index: int) -> np.ndarray:
        """The value of a node's input that must be known before anything runs.

        Args:
            node: A NodeDef of the program.
            index: Which of its inputs.

        Raises:
            EmulationError: The input is computed.
        """
        name = node.input[index].partition(":")[0]
        source = self._constants.get(name)
        while source is not None and source.op in ("Identity", "StopGradient"):
            source = self._constants.get(source.input[0].partition(":")[0])
        if source is None or source.op != "Const":
            raise EmulationError(
                f"{node.op} {node.name!r} cannot be emulated: its input {index} ({name!r}) is"
                " computed while the step runs, or comes from outside of the function; make it a"
                " constant where it is used"
            )
        return np.asarray(tf.make_ndarray(source.attr["value"].tensor))
