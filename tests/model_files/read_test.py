"""What is read of a model's files, and what is said of files that hold none."""

from __future__ import annotations

import os
import pathlib
import shutil
from typing import Any

import pytest
import tensorflow as tf

from tests.model_files.exported import exported
from tf_wu_shard.errors import ModelFileError
from tf_wu_shard.model_files.object_graph import ObjectGraph
from tf_wu_shard.model_files.read import read_model
from tf_wu_shard.tensorflow_private import model_protos

FLOAT32, INT64 = 1, 9


@pytest.fixture
def copied(tmp_path: pathlib.Path) -> pathlib.Path:
    """A SavedModel to be damaged."""
    return pathlib.Path(shutil.copytree(exported(), tmp_path / "model"))


def saved_message(folder: pathlib.Path) -> Any:
    saved = model_protos.saved_model()
    saved.ParseFromString((folder / "saved_model.pb").read_bytes())
    return saved


def test_variables_have_names_shapes_types_and_say_whether_they_are_trained() -> None:
    found = read_model(exported())
    assert found.form == "SavedModel" and not found.notes
    kernel = found.variables["sequential/hidden/kernel"]
    assert (kernel.shape, kernel.dtype, kernel.trainable) == ((16, 64), FLOAT32, True)
    iteration = found.variables["adam/iteration"]
    assert (iteration.shape, iteration.dtype, iteration.trainable) == ((), INT64, False)


def test_slots_of_a_keras_optimizer_belong_to_their_weights() -> None:
    kernel = {
        relation.name: relation.slot
        for relation in read_model(exported()).slots
        if relation.variable == "sequential/hidden/kernel"
    }
    assert kernel == {
        "momentums": "adam/sequential_hidden_kernel_momentum",
        "velocities": "adam/sequential_hidden_kernel_velocity",
    }


def test_what_an_optimizer_keeps_beside_slots_is_not_trained() -> None:
    # Keras marks the product of Nadam's momenta as trained.
    found = read_model(exported("nadam"))
    trained = [v for v in found.variables.values() if v.trainable]
    assert len(trained) == 4 and all(v.shape for v in trained)


def test_slot_references_belong_to_their_weights() -> None:
    saved = model_protos.saved_model()
    objects = saved.meta_graphs.add().object_graph_def
    for name in ("w", "m"):
        objects.nodes.add().variable.name = name
    objects.nodes.add().slot_variables.add(
        original_variable_node_id=0, slot_name="momentum", slot_variable_node_id=1
    )
    objects.nodes.add().slot_variables.add(original_variable_node_id=99)
    found = ObjectGraph(objects)
    assert [(r.variable, r.name, r.slot) for r in found.slots()] == [("w", "momentum", "m")]
    assert found.notes == ["the object graph has a slot of something that is no variable"]


def test_a_train_step_is_bound_to_its_variables() -> None:
    found = read_model(exported())
    (train,) = (f for f in found.bound if "train" in f.name and "wrapper" not in f.name)
    assert train.bound[:2] == ("sequential/hidden/kernel", "sequential/hidden/bias")
    assert train.name in found.functions


def test_text_and_binary_say_the_same(tmp_path: pathlib.Path) -> None:
    saved = saved_message(exported())
    (tmp_path / "saved_model.pbtxt").write_text(str(saved), encoding="utf-8")
    shutil.copytree(exported() / "variables", tmp_path / "variables")
    assert read_model(tmp_path).variables == read_model(exported()).variables


@pytest.mark.parametrize("suffix", ["pb", "pbtxt"])
@pytest.mark.parametrize("kind", ["GraphDef", "FunctionDef library", "library alone", "MetaGraph"])
def test_a_file_may_hold_any_kind_of_graph(tmp_path: pathlib.Path, kind: str, suffix: str) -> None:
    meta_graph = saved_message(exported()).meta_graphs[0]
    message = {
        "GraphDef": meta_graph.graph_def,
        "FunctionDef library": tf.compat.v1.GraphDef(library=meta_graph.graph_def.library),
        "library alone": meta_graph.graph_def.library,
        "MetaGraph": meta_graph,
    }[kind]
    path = tmp_path / f"graph.{suffix}"
    path.write_bytes(str(message).encode() if suffix == "pbtxt" else message.SerializeToString())
    found = read_model(path)
    assert found.form == kind.replace("library alone", "FunctionDef library")
    assert len(found.functions) == len(meta_graph.graph_def.library.function)


def test_a_checkpoint_of_tensorflow_1_names_its_variables_and_train_op(
    tmp_path: pathlib.Path,
) -> None:
    with tf.Graph().as_default():
        weight = tf.compat.v1.get_variable("w", (3, 5), use_resource=True)
        tf.compat.v1.get_variable("other", (), use_resource=True, trainable=False)
        step = tf.compat.v1.train.AdamOptimizer().minimize(tf.reduce_sum(weight))
        tf.compat.v1.train.Saver().export_meta_graph(str(tmp_path / "model.meta"))
    found = read_model(tmp_path / "model.meta")
    assert found.form == "MetaGraph" and found.train_ops == (step.name,)
    assert {v.key for v in found.variables.values() if v.trainable} == {"w"}
    assert found.variables["w"].shape == (3, 5) and found.variables["w/Adam"].trainable is False


def test_a_missing_index_is_noted(copied: pathlib.Path) -> None:
    (copied / "variables/variables.index").unlink()
    found = read_model(copied)
    assert len(found.variables) == 14
    (note,) = found.notes
    assert "No such file" in note and "shapes are those of the graph" in note


def test_an_index_that_says_something_else_is_noted(copied: pathlib.Path) -> None:
    saved = saved_message(copied)
    for node in saved.meta_graphs[0].object_graph_def.nodes:
        if node.variable.name == "sequential/out/kernel":
            node.variable.shape.dim[0].size = 63
    (copied / "saved_model.pb").write_bytes(saved.SerializeToString())
    assert read_model(copied).notes == (
        "the variables' index says other things of sequential/out/kernel",
    )


def test_variables_of_one_name_stay_apart() -> None:
    objects = model_protos.saved_model().meta_graphs.add().object_graph_def
    for name in ("w", "w_1", "w", "w:0", ""):
        objects.nodes.add().variable.name = name
    assert list(ObjectGraph(objects).variables) == ["w", "w_1", "w_2", "w_3", "variable_4"]


@pytest.mark.parametrize(
    ("sizes", "shape"),
    [((2, 0), (2, 0)), ((-1, 2), None), ((2**62, 4), None), ((1,) * 255, None)],
)
def test_a_shape_that_no_tensor_has_is_not_known(
    sizes: tuple[int, ...], shape: tuple[int, ...] | None
) -> None:
    objects = model_protos.saved_model().meta_graphs.add().object_graph_def
    variable = objects.nodes.add().variable
    variable.name = "w"
    for size in sizes:
        variable.shape.dim.add().size = size
    assert ObjectGraph(objects).variables["w"].shape == shape


def nested_attribute(depth: int) -> str:
    return "node{name:'a' op:'b' attr{key:'f' value{" + "func{attr{key:'f' value{" * depth


HOSTILE = {
    "absent.pb": None,
    "empty.pb": b"",
    "noise.pb": bytes(range(256)) * 9,
    "empty.meta": b"",
    "noise.meta": b"\xff" * 40,
    "noise.pbtxt": b"\xff\xfe\x1b[31m",
    "words.pbtxt": b"node { name: \x1b[31m",
    "deep.pbtxt": nested_attribute(5000).encode(),
    "deep.pb": b"\x0a\x7f" * 5000,
    "saved_model.pb": b"\x08\x01",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_without_a_model_is_one_line(tmp_path: pathlib.Path, name: str) -> None:
    contents = HOSTILE[name]
    if contents is not None:
        (tmp_path / name).write_bytes(contents)
    with pytest.raises(ModelFileError) as error:
        read_model(tmp_path / name)
    assert str(error.value).isprintable()


@pytest.mark.parametrize(
    ("name", "first"),
    [("net.keras", b"PK\x03\x04"), ("net.h5", b"\x89HDF\r\n\x1a\n"), ("net.pb", b"PK\x03\x04")],
)
def test_a_file_of_keras_is_called_one(tmp_path: pathlib.Path, name: str, first: bytes) -> None:
    (tmp_path / name).write_bytes(first + b"\0" * 100)
    with pytest.raises(ModelFileError, match=r"is a file of Keras' own.*--script"):
        read_model(tmp_path / name)


def test_a_folder_without_a_model_is_one_line(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ModelFileError, match=r"it holds no saved_model\.pb"):
        read_model(tmp_path)


def test_a_pipe_and_a_device_keep_nobody_waiting(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "pipe.pb")
    for path in (tmp_path / "pipe.pb", pathlib.Path("/dev/zero")):
        with pytest.raises(ModelFileError, match=r"^cannot read '[^:]*': it is no ordinary"):
            read_model(path)


def test_nothing_is_written(copied: pathlib.Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in copied.rglob("*")}
    for path in copied.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    read_model(copied)
    assert {p: p.stat().st_mtime_ns for p in copied.rglob("*")} == before
