"""The variables of a TensorFlow 1 graph, and what its collections say of them."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_wu_shard.model_files.graph_variables import graph_variables, train_ops, trainable_names
from tf_wu_shard.tensorflow_private import model_protos


def graph() -> Any:
    """A variable of each kind, and placeholders that are none."""
    graph_def = model_protos.graph_def()
    for name, op, inputs in (
        ("w", "VarHandleOp", ()),
        ("bare", "VarHandleOp", ()),
        ("given", "Placeholder", ()),
        ("x", "Placeholder", ()),
        ("read", "ReadVariableOp", ("given",)),
        ("apply", "ResourceApplyAdam", ("w", "x")),
    ):
        graph_def.node.add(name=name, op=op, input=inputs)
    graph_def.node[0].attr["shape"].shape.CopyFrom(tf.TensorShape([2, 3]).as_proto())
    graph_def.node[0].attr["dtype"].type = 1
    return graph_def


def collection(*names: str) -> Any:
    found = model_protos.meta_graph().collection_def["trainable_variables"]
    for name in names:
        variable = model_protos.variable_def()
        variable.variable_name = name
        found.bytes_list.value.append(variable.SerializeToString())
    return found


def test_a_handle_is_a_variable_and_so_is_what_ops_on_variables_take() -> None:
    variables, handles = graph_variables(graph(), frozenset({"w"}))
    assert set(variables) == set(handles) == {"w", "bare", "given"}
    w, bare, given = (variables[key] for key in ("w", "bare", "given"))
    assert (w.shape, w.dtype, w.trainable) == ((2, 3), 1, True)
    assert (bare.shape, bare.dtype, bare.trainable) == (None, 0, False)
    # Of what the graph is given, the graph says nothing.
    assert (given.shape, given.trainable) == (None, None)


def test_without_collections_nobody_knows_what_is_trained() -> None:
    variables, _ = graph_variables(graph(), None)
    assert {variable.trainable for variable in variables.values()} == {None}
    assert trainable_names({}, []) is None and train_ops({}) == ()


def test_trainable_variables_are_named_by_their_ops() -> None:
    notes: list[str] = []
    found = trainable_names({"trainable_variables": collection("w:0", "v")}, notes)
    assert found == frozenset({"w", "v"}) and notes == []


def test_an_entry_that_cannot_be_read_is_noted_and_the_others_count() -> None:
    notes: list[str] = []
    broken = collection("w:0")
    broken.bytes_list.value.append(b"\xff\xff")
    assert trainable_names({"trainable_variables": broken}, notes) == frozenset({"w"})
    assert len(notes) == 1 and "a trainable variable" in notes[0]


def test_an_op_that_trains_is_named_once() -> None:
    found = model_protos.meta_graph().collection_def["train_op"]
    found.node_list.value.extend(["train:0", "train", "other"])
    assert train_ops({"train_op": found}) == ("train", "other")
