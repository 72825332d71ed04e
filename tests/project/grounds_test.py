"""A ground is one folder: no other room of the way names an op of one, but for those listed."""

from __future__ import annotations

import ast
import pathlib

import pytest

from tests.project.imports import CHECKOUT, ROOT

GROUNDS = "tf_wu_shard/grounds/"

# The rooms of a step's way, which are to work on any ground.
ROOMS = ("step", "weight_update/analysis", "weight_update/plan", "weight_update/rewrite")

# Who of them takes something from the folder of one ground, and why.
EXCEPTIONS = {
    "tf_wu_shard/step/capture.py": "says which TPU program a function holds",
    "tf_wu_shard/step/origins.py": "tells what is a replica's own, from what ops do",
    "tf_wu_shard/step/replicas.py": "makes the dialect that a graph's replicas use",
    "tf_wu_shard/step/single_program.py": (
        "proves that all replicas of one program compute the same, from what its ops do"
    ),
    "tf_wu_shard/weight_update/analysis/matrix_slice.py": (
        "leaves ops across replicas out of what one replica computes for others"
    ),
    "tf_wu_shard/weight_update/rewrite/border.py": (
        "redirects what the host of a program does to variables to their shards"
    ),
    "tf_wu_shard/weight_update/rewrite/outside_accesses.py": (
        "finds what the host of a program does to variables"
    ),
}

SOURCES = [
    file
    for file in CHECKOUT.sources("tf_wu_shard")
    if file.startswith(tuple(f"tf_wu_shard/{room}/" for room in ROOMS))
]


def words_of(folder: pathlib.Path) -> set[str]:
    """The names of ops and of their attributes that the files of a folder name."""
    return {
        text
        for file in folder.rglob("*.py")
        for text in strings_of(file)
        if text.startswith(("_tpu", "_xla", "TPU", "Xla", "Collective", "CrossReplica"))
        and text.isidentifier()
    }


def strings_of(file: pathlib.Path) -> set[str]:
    """The strings of a source."""
    nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    return {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}


WORDS = words_of(ROOT / GROUNDS)


def test_the_grounds_name_ops_of_their_own() -> None:
    assert {"CrossReplicaSum", "TPUReplicatedInput", "CollectiveReduceV2"} <= WORDS


@pytest.mark.parametrize("file", SOURCES)
def test_no_file_of_the_way_names_an_op_of_one_ground(file: str) -> None:
    assert not strings_of(ROOT / file) & WORDS


@pytest.mark.parametrize("file", SOURCES)
def test_only_the_listed_ones_take_something_from_one_ground(file: str) -> None:
    taken = {
        imported
        for imported in CHECKOUT.imported_files(file)
        if imported.startswith(GROUNDS) and imported.count("/") > 2
        if not imported.endswith("__init__.py")
    }
    assert bool(taken) == (file in EXCEPTIONS), f"{file} takes {sorted(taken)}"
