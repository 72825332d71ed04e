"""A TensorFlow without a private name that is used says so at import, in one line."""

from __future__ import annotations

import ast
import difflib
import importlib
import inspect
import pathlib
import re
import subprocess
import sys
import threading
import traceback
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import kernels
from tensorflow.python.ops import handle_data_util

from tests.project.imports import CHECKOUT, ROOT
from tf_wu_shard.errors import UnsupportedTensorFlowError
from tf_wu_shard.tensorflow_private import required_names

FOLDER = "tf_wu_shard/tensorflow_private"

FILES = [file for file in CHECKOUT.sources("tf_wu_shard") if file.startswith(FOLDER)]

# Strings that look like names of attributes: attributes of functions and nodes in a graph, what we
# keep among a component's own, and what variables and callbacks of Keras have.
OTHER_STRINGS = {
    *("_XlaMustCompile", "_class", "_plain_class", "_use_cached_eval_dataset", "_value"),
    *("_initialize", "_variable", "model"),
}

# Not in every release; asked for before it is used.
OPTIONAL = {"collective_manager_ids_used"}

# Whose attributes anybody may use, and messages, whose fields stay.
PUBLIC: tuple[Any, ...] = (
    *(str, bytes, dict, list, set, tuple, property, types.FunctionType, types.CodeType),
    *(
        traceback.FrameSummary("file", 1, "name"),
        difflib.SequenceMatcher,
        inspect.signature(len),
        inspect.signature(len).bind([]),
        inspect.ClosureVars,
    ),
    *(np.ndarray, tf.DType, tf.DeviceSpec, tf.Graph, tf.Operation, tf.Tensor, tf.TensorShape),
    *(tf.Variable, tf.data.Dataset, tf.distribute.Strategy, tf.distribute.DistributedValues),
    tf.distribute.experimental.CommunicationOptions(),
    *(tf.distribute.StrategyExtended, tf.distribute.cluster_resolver.TPUClusterResolver),
    *(tf.train.ClusterSpec, tf.distribute.cluster_resolver.ClusterResolver, tf.errors.OpError),
    *(tf.tpu.experimental.DeviceAssignment, tf.tpu.experimental.Topology),
    *(
        tf.compat.v1.AttrValue(),
        tf.compat.v1.GraphDef(),
        tf.compat.v1.GraphDef().library,
        tf.compat.v1.NodeDef(),
    ),
    *(
        handle_data_util.create_handle_data(tf.TensorShape([]), tf.bool),
        tf.TensorShape([]).as_proto(),
    ),
    kernels.get_registered_kernels_for_op("NoOp"),
    threading.Condition,
)

LISTED = {name for names in required_names.REQUIRED.values() for name in names}


def own_names() -> set[str]:
    """What classes and modules of the folder define that is no attribute of a TensorFlow class."""
    own: set[str] = set()
    for file in FILES:
        module = importlib.import_module(file.removesuffix(".py").replace("/", "."))
        for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ClassDef):
                continue
            defined = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
            for part in ast.walk(node):
                if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                    defined.add(part.target.id)
                elif isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store):
                    defined.add(part.attr)
                elif isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                    defined.add(part.id)
            own |= {name for name in defined if not _is_inherited(getattr(module, node.name), name)}
    return own


def _is_inherited(kind: type, name: str) -> bool:
    bases = [base for base in kind.__mro__ if base.__module__.startswith("tensorflow.")]
    return any(hasattr(base, name) or name in required_names._given(base) for base in bases)


def attributes(file: str) -> Iterator[tuple[str, int]]:
    """Attributes of objects that a file uses, plainly or as a string, and methods, with lines."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    # Other packages' modules, and our own.
    modules = {
        alias.asname or alias.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        or (isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tf_wu_shard."))
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _root(node) not in modules:
            yield node.attr, node.lineno
        elif isinstance(node, ast.ClassDef):
            yield from ((p.name, p.lineno) for p in node.body if isinstance(p, ast.FunctionDef))
        elif isinstance(node, ast.Constant) and re.fullmatch(r"_[a-z]\w*[a-z]", str(node.value)):
            yield str(node.value), node.lineno


def _root(node: ast.expr) -> str | None:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def test_the_installed_tensorflow_has_all_names() -> None:
    assert list(required_names.missing_names()) == []
    required_names.check()


@pytest.mark.parametrize("file", FILES)
def test_whatever_is_imported_from_private_tensorflow_is_listed(file: str) -> None:
    places = {place.partition(":")[0] for place in required_names.REQUIRED}
    for module, name, _ in CHECKOUT.imports(file):
        if module.startswith("tensorflow."):
            inside = module.removeprefix("tensorflow.")
            listed = f"{inside}.{name}" in places or name in required_names.REQUIRED.get(inside, ())
            assert listed, f"list {name} of {module} in {required_names.__name__}"


@pytest.mark.parametrize("file", FILES)
def test_whatever_is_taken_from_a_private_module_is_listed(file: str) -> None:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    private = {
        alias.asname or alias.name: f"{node.module}.{alias.name}".removeprefix("tensorflow.")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tensorflow.")
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            place = private.get(node.value.id)
            if place in required_names.REQUIRED:
                assert node.attr in required_names.REQUIRED[place], (
                    f"{file}:{node.lineno}: list {node.attr} of tensorflow.{place} in"
                    f" {required_names.__name__}"
                )


def test_whatever_attribute_is_neither_public_nor_ours_is_listed() -> None:
    public = {name for owner in PUBLIC for name in dir(owner) if name[0] != "_"}
    known = public | LISTED | own_names() | OTHER_STRINGS | OPTIONAL
    unlisted = [
        f"{file}:{line}: {name}"
        for file in FILES
        for name, line in attributes(file)
        if name not in known and not name.startswith("_wu_shard") and not name.endswith("__")
    ]
    assert not unlisted, f"list them in {required_names.__name__}, or say here whose they are"


REMOVED = (
    ("python.eager.context", "Context", "set_optimizer_experimental_options"),
    ("python.framework.func_graph", "", "func_graph_from_py_func"),
    ("python.distribute.values", "", "_MirroredSaveable"),
)


@pytest.mark.parametrize(("module", "kind", "name"), REMOVED)
def test_a_missing_name_is_one_line_that_says_what_to_do(
    module: str, kind: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = importlib.import_module(f"tensorflow.{module}")
    monkeypatch.delattr(getattr(place, kind) if kind else place, name)
    with pytest.raises(UnsupportedTensorFlowError) as caught:
        required_names.check()
    said = str(caught.value)
    assert "\n" not in said
    assert f"TensorFlow {tf.__version__}: it lacks tensorflow.{module}." in said
    assert "supported is TensorFlow 2.18 to 2.21: pip install" in said


def test_a_missing_module_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow.python.eager.record", None)
    assert list(required_names.missing_names()) == ["tensorflow.python.eager.record"]


def test_an_attribute_that_no_constructor_gives_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = "python.framework.func_graph:FuncGraph"
    named = (*required_names.REQUIRED[place], "_function_captured")
    monkeypatch.setitem(required_names.REQUIRED, place, named)
    (missing,) = required_names.missing_names()
    assert missing == "tensorflow.python.framework.func_graph.FuncGraph._function_captured"


def test_importing_the_package_with_such_a_tensorflow_fails_in_one_line(
    tmp_path: pathlib.Path,
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import tensorflow as tf\n"
        "from tensorflow.python.framework import func_graph\n"
        "del func_graph.func_graph_from_py_func\n"
        "import tf_wu_shard\n",
        encoding="utf-8",
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 1
    *_, last = done.stderr.splitlines()
    assert last.startswith("tf_wu_shard.errors.UnsupportedTensorFlowError: tf_wu_shard cannot work")
    assert "tensorflow.python.framework.func_graph.func_graph_from_py_func" in last
    assert done.stderr.count("Traceback") == 1
