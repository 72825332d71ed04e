"""The variables that a graph of TensorFlow 1 makes, and what its collections say of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tf_wu_shard.errors import ModelFileError
from tf_wu_shard.model_files.contents import parse
from tf_wu_shard.model_files.shapes import shape_of
from tf_wu_shard.model_files.types import ModelVariable
from tf_wu_shard.tensorflow_private import model_protos

HANDLE = "VarHandleOp"

# What yields the handles that a function is given.
GIVEN = frozenset({"Placeholder", "_Arg"})

_ON_VARIABLES = "VariableOp"
_OF_VARIABLES = ("ResourceApply", "ResourceSparseApply", "ResourceScatter", "ResourceGather")
_TRAINABLE = "trainable_variables"
_TRAIN_OP = "train_op"


def graph_variables(
    graph_def: Any, trainable: frozenset[str] | None
) -> tuple[dict[str, ModelVariable], dict[str, str]]:
    """The variables of a graph.

    Args:
        graph_def: The GraphDef.
        trainable: Names of the ops that yield the trainable ones' handles; None where it is not
            known which are.

    Returns:
        The variables by key, and for each op that yields a handle, the key.
    """
    variables: dict[str, ModelVariable] = {}
    handles: dict[str, str] = {}
    given = _taken_for_handles(graph_def)
    for node in graph_def.node:
        if node.op in GIVEN and node.name in given:
            # The graph of a traced function, whose variables are outside of it.
            variables[node.name] = ModelVariable(node.name, None, 0, None)
            handles[node.name] = node.name
        if node.op == HANDLE:
            variables[node.name] = ModelVariable(
                node.name,
                shape_of(node.attr["shape"].shape) if "shape" in node.attr else None,
                node.attr["dtype"].type if "dtype" in node.attr else 0,
                None if trainable is None else node.name in trainable,
            )
            handles[node.name] = node.name
    return variables, handles


def _taken_for_handles(graph_def: Any) -> set[str]:
    """Names of what ops on variables take for the handle of one."""
    return {
        node.input[0]
        for node in graph_def.node
        if node.input and (node.op.endswith(_ON_VARIABLES) or node.op.startswith(_OF_VARIABLES))
    }


def trainable_names(collections: Mapping[str, Any], notes: list[str]) -> frozenset[str] | None:
    """Names of the ops of the trainable variables in a MetaGraph's collections.

    Args:
        collections: The CollectionDefs by name.
        notes: What cannot be read is added.

    Returns:
        The names; None where the collections do not say.
    """
    if _TRAINABLE not in collections:
        return None
    found = set()
    for data in collections[_TRAINABLE].bytes_list.value:
        try:
            variable = parse(model_protos.variable_def(), data, "a trainable variable")
        except ModelFileError as error:
            notes.append(str(error))
            continue
        found.add(variable.variable_name.partition(":")[0])
    return frozenset(found)


def train_ops(collections: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the ops that a MetaGraph's collections say train the model."""
    if _TRAIN_OP not in collections:
        return ()
    names = (v.partition(":")[0] for v in collections[_TRAIN_OP].node_list.value)
    return tuple(dict.fromkeys(names))
