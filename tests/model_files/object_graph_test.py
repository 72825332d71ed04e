"""What an object graph says: variables by name, slots of both kinds, what contradicts itself."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_wu_shard.model_files.index_table import IndexEntry
from tf_wu_shard.model_files.object_graph import ObjectGraph
from tf_wu_shard.model_files.types import SlotRelation
from tf_wu_shard.tensorflow_private import model_protos


def graph_of(*names: str) -> Any:
    """A root, and variables of some names as objects 1, 2, 3 ..."""
    graph = model_protos.saved_model().meta_graphs.add().object_graph_def
    root = graph.nodes.add()
    for number, name in enumerate(names):
        root.children.add(node_id=number + 1, local_name=f"v{number}")
        variable = graph.nodes.add().variable
        variable.name, variable.dtype, variable.trainable = name, 1, True
        variable.shape.CopyFrom(tf.TensorShape([4]).as_proto())
    return graph


def list_of(graph: Any, *members: int) -> int:
    """Adds a list of objects; returns its number."""
    node = graph.nodes.add()
    for place, number in enumerate(members):
        node.children.add(node_id=number, local_name=str(place))
    return len(graph.nodes) - 1


def test_variables_of_one_name_are_counted_and_one_without_a_name_has_its_number() -> None:
    found = ObjectGraph(graph_of("w:0", "w", "", "w_1"))
    assert list(found.variables) == ["w", "w_1", "variable_3", "w_1_1"]
    assert found.variables["w"].shape == (4,) and found.variables["w"].trainable


def test_weights_that_keras_calls_alike_go_by_the_way_to_them() -> None:
    graph = graph_of("m/kernel", "m/kernel", "m/kernel", "m/bias", "m/kernel")
    layers = list_of(graph, len(graph.nodes) + 1, len(graph.nodes) + 2)
    for kernel in (1, 2):
        graph.nodes.add().children.add(node_id=kernel, local_name="_kernel")
    # A way back, one to nothing, and one by a number alone: what is at its end keeps its name.
    graph.nodes[layers + 1].children.add(node_id=0, local_name="model")
    graph.nodes[layers + 1].children.add(node_id=99, local_name="kernel")
    graph.nodes[0].children.add(node_id=layers, local_name="layers")
    graph.nodes[0].children.add(node_id=list_of(graph, 3), local_name="weights")
    found = ObjectGraph(graph)
    assert [*found.variables] == [
        *("layers/0/kernel", "layers/1/kernel", "m/kernel", "m/bias", "m/kernel_1")
    ]


def test_a_slot_reference_names_its_weight() -> None:
    graph = graph_of("w", "m")
    reference = graph.nodes.add().slot_variables.add()
    reference.original_variable_node_id, reference.slot_variable_node_id = 1, 2
    reference.slot_name = "momentum"
    found = ObjectGraph(graph)
    assert found.slots() == (SlotRelation("w", "momentum", "m"),) and found.notes == []


def test_a_slot_of_what_is_no_variable_is_noted() -> None:
    graph = graph_of("w")
    graph.nodes.add().slot_variables.add(original_variable_node_id=99, slot_variable_node_id=1)
    found = ObjectGraph(graph)
    assert found.slots() == () and "no variable" in found.notes[0]


def keras_3(graph: Any, weights: int, slots: int, everything: int) -> None:
    """Adds an optimizer of Keras 3 that keeps lists."""
    optimizer = graph.nodes.add()
    for name, number in (
        ("_trainable_variables", weights),
        ("_momentums", slots),
        ("_variables", everything),
    ):
        optimizer.children.add(node_id=number, local_name=name)


def test_lists_that_are_as_long_as_the_list_of_weights_are_slots_and_not_trained() -> None:
    graph = graph_of("w", "b", "w_m", "b_m", "rate")
    keras_3(graph, list_of(graph, 1, 2), list_of(graph, 3, 4), list_of(graph, 5, 3, 4))
    found = ObjectGraph(graph)
    assert found.slots() == (
        SlotRelation("w", "momentums", "w_m"),
        SlotRelation("b", "momentums", "b_m"),
    )
    assert [v.key for v in found.variables.values() if v.trainable] == ["w", "b"]


def test_what_an_export_of_keras_holds_once_more_is_left_out() -> None:
    graph = graph_of("w", "b", "w", "b", "b", "other")
    exported, again = list_of(graph, 1, 2), list_of(graph, 3, 4, 5, 6)
    graph.nodes[0].children.add(node_id=exported, local_name="variables")
    # Without the second list they are variables of one name.
    assert len(ObjectGraph(graph).variables) == 6
    graph.nodes[0].children.add(node_id=again, local_name="_all_variables")
    graph.concrete_functions["f"].bound_inputs.extend([1, 2, 5])
    # What a function takes is no copy, nor is what has no other of its name.
    found = ObjectGraph(graph)
    assert list(found.variables) == ["w", "b", "b_2", "other"]
    assert found.bound_functions()[0].bound == ("w", "b", "b_2")


def test_a_list_of_another_length_says_nothing() -> None:
    graph = graph_of("w", "b", "w_m")
    keras_3(graph, list_of(graph, 1, 2), list_of(graph, 3), list_of(graph, 3))
    assert ObjectGraph(graph).slots() == ()


def test_an_index_that_says_other_things_is_noted_once_by_the_variables_name() -> None:
    graph = graph_of("w", "b")
    name = "v{}/.ATTRIBUTES/VARIABLE_VALUE"
    index = {name.format(n): IndexEntry((shape,), 1) for n, shape in ((0, 4), (1, 5))}
    found = ObjectGraph(graph)
    found.compare(index)
    found.compare({**index, "nowhere/.ATTRIBUTES/VARIABLE_VALUE": IndexEntry((9,), 1)})
    assert found.notes == ["the variables' index says other things of b"]


def test_bound_inputs_that_are_no_variables_stay_unnamed() -> None:
    graph = graph_of("w")
    graph.concrete_functions["train"].bound_inputs.extend([1, 0, 77])
    (function,) = ObjectGraph(graph).bound_functions()
    assert (function.name, function.bound) == ("train", ("w", "", ""))
