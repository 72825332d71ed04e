"""Reads a model from a path, whatever kind of file it is.

Nothing is executed and nothing is written; the variables' values are not read. TensorFlow lends the
classes of the messages and nothing else.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from tf_wu_shard.errors import ModelFileError
from tf_wu_shard.model_files import graph_variables
from tf_wu_shard.model_files.contents import parse, parse_text, read_bytes
from tf_wu_shard.model_files.index_table import index_entries
from tf_wu_shard.model_files.object_graph import ObjectGraph
from tf_wu_shard.model_files.source_lines import SourceLines, source_lines
from tf_wu_shard.model_files.types import Model
from tf_wu_shard.tensorflow_private import model_protos

_BINARY, _TEXT = "saved_model.pb", "saved_model.pbtxt"
_INDEX = pathlib.PurePath("variables") / "variables.index"


def files_of(path: pathlib.Path) -> tuple[pathlib.Path, ...]:
    """The files that may be read for a model, whether they are there or not.

    Args:
        path: What `read_model` is given.
    """
    return (path, path / _BINARY, path / _TEXT, path / _INDEX)


def read_model(path: pathlib.Path) -> Model:
    """Reads a model.

    Args:
        path: The directory of a SavedModel; a file of a SavedModel, a GraphDef, a MetaGraphDef or
            a FunctionDefLibrary, binary or (.pbtxt) text; or the .meta file of a checkpoint.

    Returns:
        What it says. What could not be read of it, while the rest could, is among the notes.

    Raises:
        ModelFileError: There is no model that can be read.
    """
    if path.is_dir():
        file = next((path / n for n in (_BINARY, _TEXT) if (path / n).exists()), None)
        if file is None:
            raise ModelFileError(f"{str(path)!r} is no SavedModel: it holds no {_BINARY}")
        return _saved_model(_message(model_protos.saved_model(), file), path)
    if path.name in (_BINARY, _TEXT):
        return _saved_model(_message(model_protos.saved_model(), path), path.parent)
    if path.suffix == ".meta":
        meta_graph = _message(model_protos.meta_graph(), path)
        # Bytes that hold nothing, as of a file that was cut off at once, are a message too.
        if not meta_graph.graph_def.node and not meta_graph.graph_def.library.function:
            raise ModelFileError(f"{str(path)!r} holds no graph")
        return _meta_graph(meta_graph)
    return _by_contents(path)


def _message(message: Any, path: pathlib.Path) -> Any:
    parser = parse_text if path.suffix == ".pbtxt" else parse
    return parser(message, read_bytes(path), repr(str(path)))


# What a .keras file, which is a zip, begins with, and one of HDF5.
_OF_KERAS = (b"PK\x03\x04", b"\x89HDF\r\n\x1a\n")


def _by_contents(path: pathlib.Path) -> Model:
    """A file that may hold any of several messages: the first that its bytes make sense as."""
    data, text = read_bytes(path), path.suffix == ".pbtxt"
    if data.startswith(_OF_KERAS):
        raise ModelFileError(
            f"{str(path)!r} is a file of Keras' own, with layers and weights and no graph; write a"
            " SavedModel of the training step by tf.saved_model.save, or inspect the script that"
            " trains: wu-shard inspect --script SCRIPT.py"
        )
    for form in _FORMS:
        try:
            parser = parse_text if text else parse
            message = parser(form.message(), data, repr(str(path)))
        except ModelFileError:
            continue
        if form.makes_sense(message):
            return form.model(message)
    raise ModelFileError(
        f"{str(path)!r} holds no SavedModel, GraphDef, FunctionDefLibrary or MetaGraphDef that can"
        " be read: truncated, corrupted, or something else"
    )


@dataclasses.dataclass(frozen=True)
class _Form:
    """A kind of message: an empty one, whether a filled one makes sense, the model in it."""

    message: Callable[[], Any]
    makes_sense: Callable[[Any], bool]
    model: Callable[[Any], Model]


def _is_graph(graph_def: Any) -> bool:
    return (bool(graph_def.node) and all(n.op and n.name for n in graph_def.node)) or (
        not graph_def.node and _is_library(graph_def.library)
    )


def _is_library(library: Any) -> bool:
    return bool(library.function) and all(f.signature.name for f in library.function)


def _graph(graph_def: Any) -> Model:
    variables, handles = graph_variables.graph_variables(graph_def, None)
    notes: list[str] = []
    return Model(
        form="GraphDef" if graph_def.node else "FunctionDef library",
        graph_def=graph_def,
        functions=_functions(graph_def, notes),
        bound=(),
        variables=variables,
        handles=handles,
        slots=(),
        train_ops=(),
        notes=tuple(notes),
    )


def _library(library: Any) -> Model:
    graph_def = model_protos.graph_def()
    graph_def.library.CopyFrom(library)
    return _graph(graph_def)


def _functions(graph_def: Any, notes: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for function in graph_def.library.function:
        if found.setdefault(function.signature.name, function) is not function:
            notes.append("several functions have the same name; all but the first are left out")
    return found


def _saved_model(saved: Any, folder: pathlib.Path | None) -> Model:
    if not saved.meta_graphs:
        raise ModelFileError("the SavedModel holds no graph")
    notes: list[str] = []
    training = [m for m in saved.meta_graphs if "train" in m.meta_info_def.tags]
    meta_graph = (*training, *saved.meta_graphs)[0]
    if len(saved.meta_graphs) > 1:
        tags = ", ".join(repr(tag) for tag in meta_graph.meta_info_def.tags)
        notes.append(f"of {len(saved.meta_graphs)} graphs only the one tagged {tags} was read")
    return _meta_graph(meta_graph, "SavedModel", notes, folder)


def _meta_graph(
    meta_graph: Any,
    form: str = "MetaGraph",
    notes: Sequence[str] = (),
    folder: pathlib.Path | None = None,
) -> Model:
    found = list(notes)
    graph_def, collections = meta_graph.graph_def, meta_graph.collection_def
    objects = ObjectGraph(meta_graph.object_graph_def)
    trained = graph_variables.trainable_names(collections, found)
    variables, handles = graph_variables.graph_variables(graph_def, trained)
    if objects.variables:
        # The graph beside an object graph saves and restores; functions get the objects' handles.
        variables, handles = objects.variables, {}
    if folder is not None and variables:
        _compare_with_index(objects, folder, found)
    lines = None if folder is None else _source_lines(folder, found)
    bound, slots = objects.bound_functions(), objects.slots()
    return Model(
        form=form,
        graph_def=graph_def,
        functions=_functions(graph_def, found),
        bound=bound,
        variables=variables,
        handles=handles,
        slots=slots,
        train_ops=graph_variables.train_ops(collections),
        notes=tuple(dict.fromkeys((*found, *objects.notes))),
        source_lines=lines,
    )


def _source_lines(folder: pathlib.Path, notes: list[str]) -> SourceLines | None:
    try:
        return source_lines(folder)
    except ModelFileError as error:
        notes.append(f"{error}; ops are shown without the lines that made them")
        return None


def _compare_with_index(objects: ObjectGraph, folder: pathlib.Path, notes: list[str]) -> None:
    try:
        objects.compare(index_entries(read_bytes(folder / _INDEX)))
    except ModelFileError as error:
        notes.append(f"{error}; shapes are those of the graph")


_FORMS = (
    _Form(model_protos.graph_def, _is_graph, _graph),
    _Form(model_protos.function_library, _is_library, _library),
    _Form(
        model_protos.saved_model,
        lambda saved: any(_is_graph(m.graph_def) for m in saved.meta_graphs),
        lambda saved: _saved_model(saved, None),
    ),
    _Form(
        model_protos.meta_graph,
        lambda meta_graph: _is_graph(meta_graph.graph_def),
        lambda meta_graph: _meta_graph(meta_graph),
    ),
)
