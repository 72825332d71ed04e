"""SavedModels of any size, written message by message: Keras' Adam on a chain of layers."""

from __future__ import annotations

import pathlib
from typing import Any

import tensorflow as tf

from tf_wu_shard.tensorflow_private import model_protos

SIDE = 40

_FLOAT, _BOOL, _RESOURCE = 1, 10, 20

# Names of the results in a FunctionDef, where they are not called "z".
_RESULTS = {"ReadVariableOp": "value", "MatMul": "product", "Const": "output", "Identity": "output"}
_RESULTS |= {"Square": "y", "Sqrt": "y", "Tanh": "y"}


class FunctionWriter:
    """Writes nodes into a FunctionDef."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def call(self, name: str, function: str, *inputs: str) -> None:
        """Adds a call of a function that takes a value and a handle and returns nothing."""
        node = self._function.node_def.add(name=name, op="StatefulPartitionedCall")
        node.input.extend(inputs)
        node.attr["f"].func.name = function
        node.attr["Tin"].list.type.extend([_FLOAT, _RESOURCE])
        node.attr["Tout"].list.SetInParent()
        self._function.control_ret[name] = name

    def branch(
        self, name: str, then: str, otherwise: str, operands: list[tuple[str, int]], *after: str
    ) -> None:
        """Adds a branch that returns nothing, with operands of these types, after other ops."""
        predicate = self._function.node_def.add(name=f"{name}/test", op="Const")
        predicate.attr["dtype"].type = _BOOL
        predicate.attr["value"].tensor.dtype = _BOOL
        node = self._function.node_def.add(name=name, op="If")
        node.input.extend([f"{name}/test:output:0", *(text for text, _ in operands), *after])
        node.attr["then_branch"].func.name, node.attr["else_branch"].func.name = then, otherwise
        node.attr["Tcond"].type = _BOOL
        node.attr["Tin"].list.type.extend([dtype for _, dtype in operands])
        node.attr["Tout"].list.SetInParent()
        self._function.control_ret[name] = name

    def op(self, op: str, name: str, *inputs: str, shape: tuple[int, ...] = (SIDE, SIDE)) -> str:
        """Adds a node; returns its result, as other nodes read it."""
        node = self._function.node_def.add(name=name, op=op)
        node.input.extend(inputs)
        attribute = "dtype" if op in ("ReadVariableOp", "Const") or "Assign" in op else "T"
        node.attr[attribute].type = _FLOAT
        if op == "Const":
            node.attr["value"].tensor.dtype = _FLOAT
            node.attr["value"].tensor.float_val.append(0.5)
        if "Assign" in op:
            self._function.control_ret[name] = name
            return f"^{name}"
        said = node.attr["_output_shapes"].list.shape.add()
        for size in shape:
            said.dim.add(size=size)
        return f"{name}:{_RESULTS.get(op, 'z')}:0"


def write_large_model(
    folder: pathlib.Path, layers: int, nodes_a_layer: int, *, in_a_branch: bool = False
) -> None:
    """Writes a model of square layers, each with a weight and two slots, and its train step.

    Args:
        folder: Where to; it exists.
        layers: How many layers.
        nodes_a_layer: About how many nodes each has in the train step; at least 40.
        in_a_branch: Whether all updates stand in one branch of the step.
    """
    saved = model_protos.saved_model()
    meta_graph = saved.meta_graphs.add()
    function = meta_graph.graph_def.library.function.add()
    function.signature.name = "__inference_train_1"
    function.signature.input_arg.add(name="batch", type=_FLOAT)
    nodes = meta_graph.object_graph_def.nodes
    root = nodes.add()
    bound = meta_graph.object_graph_def.concrete_functions["__inference_train_1"].bound_inputs
    for layer in range(layers):
        for kind in ("w", "m", "v"):
            name = f"{kind}{layer}"
            function.signature.input_arg.add(name=name, type=_RESOURCE)
            root.children.add(local_name=name, node_id=len(nodes))
            bound.append(len(nodes))
            variable = nodes.add().variable
            variable.name, variable.dtype, variable.trainable = name, _FLOAT, kind == "w"
            for _ in range(2):
                variable.shape.dim.add(size=SIDE)
    step = FunctionWriter(function)
    gradients = _write_gradients(step, layers, nodes_a_layer)
    if in_a_branch:
        _write_branch(meta_graph.graph_def.library.function, step, gradients)
    else:
        for layer, gradient in gradients.items():
            _write_update(step, layer, gradient, f"^read{layer}")
    (folder / "saved_model.pb").write_bytes(saved.SerializeToString())
    _write_values(folder, [f"{kind}{layer}" for layer in range(layers) for kind in "wmv"])


def _write_gradients(step: FunctionWriter, layers: int, nodes_a_layer: int) -> dict[int, str]:
    value, values = "batch", []
    for layer in range(layers):
        weight = step.op("ReadVariableOp", f"read{layer}", f"w{layer}")
        values.append(value)
        value = step.op("MatMul", f"layer{layer}", value, weight)
        for number in range(nodes_a_layer - 20):
            value = step.op("Tanh", f"tanh{layer}_{number}", value)
    gradients = {}
    for layer in reversed(range(layers)):
        gradients[layer] = step.op("MatMul", f"gradient{layer}", values[layer], value)
        value = step.op("MatMul", f"back{layer}", value, f"read{layer}:value:0")
    return gradients


def _write_branch(library: Any, step: FunctionWriter, gradients: dict[int, str]) -> None:
    """Writes updates into a function, and a branch of the step that calls it or does nothing."""
    names = {f"g{layer}": (gradient, _FLOAT) for layer, gradient in gradients.items()}
    names |= {f"{kind}{n}": (f"{kind}{n}", _RESOURCE) for n in gradients for kind in "wmv"}
    for name in ("apply", "skip"):
        function = library.add()
        function.signature.name = name
        for number, (argument, (_, dtype)) in enumerate(names.items()):
            function.signature.input_arg.add(name=argument, type=dtype)
            if dtype == _FLOAT:
                said = function.arg_attr[number].attr["_output_shapes"].list.shape.add()
                for _ in range(2):
                    said.dim.add(size=SIDE)
        if name == "apply":
            for layer in gradients:
                _write_update(FunctionWriter(function), layer, f"g{layer}")
    reads = [f"^read{layer}" for layer in gradients]
    step.branch("finite", "apply", "skip", list(names.values()), *reads)


def _write_update(step: FunctionWriter, layer: int, gradient: str, *after: str) -> None:
    rate = step.op("Const", f"rate{layer}", shape=())

    def moved(slot: str, toward: str) -> str:
        held = step.op("ReadVariableOp", f"old_{slot}{layer}", f"{slot}{layer}")
        change = step.op("Sub", f"change_{slot}{layer}", toward, held)
        change = step.op("Mul", f"part_{slot}{layer}", change, rate)
        waits = f"^old_{slot}{layer}"
        done = step.op("AssignAddVariableOp", f"put_{slot}{layer}", f"{slot}{layer}", change, waits)
        return step.op("ReadVariableOp", f"new_{slot}{layer}", f"{slot}{layer}", done)

    average = moved("m", gradient)
    squares = moved("v", step.op("Square", f"square{layer}", gradient))
    root = step.op("Sqrt", f"root{layer}", squares)
    root = step.op("AddV2", f"above_zero{layer}", root, rate)
    scaled = step.op("Mul", f"scaled{layer}", average, rate)
    change = step.op("RealDiv", f"ratio{layer}", scaled, root)
    step.op("AssignSubVariableOp", f"put_w{layer}", f"w{layer}", change, *after)


def _write_values(folder: pathlib.Path, names: list[str]) -> None:
    (folder / "variables").mkdir()
    tf.raw_ops.SaveV2(
        prefix=str(folder / "variables/variables"),
        tensor_names=[f"{name}/.ATTRIBUTES/VARIABLE_VALUE" for name in names],
        shape_and_slices=[""] * len(names),
        tensors=[tf.zeros((SIDE, SIDE))] * len(names),
    )
