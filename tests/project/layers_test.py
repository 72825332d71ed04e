"""Imports go one way: from the command line down to the leaves, never back."""

from __future__ import annotations

import pytest

from tests.project.imports import CHECKOUT

# From the ground up. A unit is a folder of tf_wu_shard/ or a module that lies in it directly; it
# may import the units of the levels below its own. tf_wu_shard itself is its __init__.py.
LEVELS = (
    (
        *("colocation", "errors", "dtypes", "layout", "placement", "refusals"),
        *("cluster_addresses", "replicas", "script_words", "topology"),
    ),
    ("liveness",),
    ("graph", "captures"),
    ("grounds",),
    ("rules",),
    ("step",),
    ("program", "storage"),
    ("weight_update/analysis",),
    ("weight_update/plan",),
    ("report",),
    ("weight_update/rewrite", "gate"),
    ("weight_update", "partial_sums", "eligibility", "passes"),
    ("extending",),
    ("graph_pass", "graph_def", "inspection"),
    ("estimation",),
    ("script_inspection", "tensorboard_report"),
    ("tf_wu_shard",),
    ("bench",),
    ("tpu_compiler",),
    ("demo",),
    ("cli",),
)

# Rooms beside the tower, which know only this much of it. The tower's levels may know them.
ASIDE = {
    "config": {"errors", "grounds", "tensorflow_private"},
    "cores": set(),
    "deferred": {"errors"},
    "reachable": set(),
    "tensorflow_private": {"colocation", "errors", "layout", "reachable", "unique_names"},
    "emulation": {"errors", "graph", "grounds", "tensorflow_private", "topology"},
    "model_files": {"errors", "tensorflow_private", "unique_names"},
    "models": {"errors"},
    "preferences": {"layout"},
    "unique_names": set(),
    "workers": {"errors", "tensorflow_private"},
}

# These answer from plain data, in milliseconds, with no TensorFlow import of their own.
PURE = (
    *("cluster_addresses", "errors", "dtypes", "layout", "placement", "preferences", "refusals"),
    *("replicas", "topology", "config", "cores", "reachable", "unique_names"),
    *("rules", "weight_update/analysis", "weight_update/plan", "report"),
)
PURE_FILES = (
    *("tf_wu_shard/graph/view.py", "tf_wu_shard/cli/main.py", "tf_wu_shard/cli/program.py"),
    *("tf_wu_shard/workers/agreement.py", "tf_wu_shard/workers/connections.py"),
    *("tf_wu_shard/workers/farewells.py", "tf_wu_shard/workers/loss.py"),
    *("tf_wu_shard/workers/messages.py", "tf_wu_shard/workers/request_log.py"),
    *("tf_wu_shard/workers/shard_answers.py", "tf_wu_shard/workers/shard_exchange.py"),
    *("tf_wu_shard/workers/shard_reader.py", "tf_wu_shard/workers/store.py"),
    "tf_wu_shard/workers/watch.py",
)

SOURCES = CHECKOUT.sources("tf_wu_shard", "models")


def unit_of(file: str) -> str:
    """The room that a file belongs to."""
    parts = file.split("/")
    if parts[0] == "models":
        return "models"
    if len(parts) > 3 and parts[1] == "weight_update":
        return "/".join(parts[1:3])
    if len(parts) > 2:
        return parts[1]
    return parts[0] if parts[1] == "__init__.py" else parts[1].removesuffix(".py")


def may_import(unit: str) -> set[str]:
    """The units that files of `unit` may import."""
    if unit in ASIDE:
        return ASIDE[unit]
    for height, level in enumerate(LEVELS):
        if unit in level:
            below = {name for lower in LEVELS[:height] for name in lower}
            # The lowest level may use the errors; a module of it knows no other module of it.
            return (below | set(ASIDE) if height else {"errors"}) - {unit}
    raise AssertionError(f"tf_wu_shard/{unit} has no place in the layers; give it one in LEVELS")


@pytest.mark.parametrize("file", SOURCES)
def test_no_arrow_runs_back(file: str) -> None:
    unit = unit_of(file)
    back = {
        imported
        for imported in CHECKOUT.imported_files(file)
        if unit_of(imported) not in {unit, *may_import(unit)}
    }
    assert not back, (
        f"{file} ({unit}) may not import {sorted(back)}; it may import {sorted(may_import(unit))}"
    )


@pytest.mark.parametrize("file", SOURCES)
def test_only_one_folder_touches_private_tensorflow(file: str) -> None:
    if unit_of(file) == "tensorflow_private":
        return
    private = ("tensorflow.python", "tensorflow.core", "tensorflow.compiler")
    touched = [
        f"{module}.{name}" if name else module
        for module, name, _ in CHECKOUT.imports(file)
        if f"{module}.{name or ''}.".startswith(tuple(f"{prefix}." for prefix in private))
    ]
    assert not touched, f"{file} imports {touched}; only tensorflow_private/ may"


@pytest.mark.parametrize(
    "file", [file for file in SOURCES if unit_of(file) in PURE or file in PURE_FILES]
)
def test_pure_layers_import_no_tensorflow(file: str) -> None:
    loaded = {module.partition(".")[0] for module, _, _ in CHECKOUT.imports(file)}
    assert not loaded & {"tensorflow", "keras"}, f"{file} is to answer without TensorFlow"
    # The flag lives in TensorFlow's context; config asks for it when it is asked.
    if unit_of(file) != "config":
        rooms = {unit_of(imported) for imported in CHECKOUT.imported_files(file)}
        assert "tensorflow_private" not in rooms, f"{file} is to answer without TensorFlow"


def test_nothing_imports_models_as_a_top_level_package() -> None:
    for file in CHECKOUT.sources("tf_wu_shard", "models", "tests", "tools"):
        for module, _, _ in CHECKOUT.imports(file):
            assert module.partition(".")[0] != "models", f"{file}: it is tf_wu_shard.models"
