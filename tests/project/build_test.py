"""The BUILD file says what the sources say: one library a folder, deps as the imports are."""

from __future__ import annotations

import sys

import pytest

from tests.project import build_file
from tests.project.imports import (
    SOURCE_FOLDERS,
    imported_files,
    imported_packages,
    sources,
)

# The distribution that brings each package we import, as the BUILD file labels it.
DISTRIBUTIONS = {
    "absl": "absl_py",
    "docutils": "docutils",
    "google": "protobuf",
    "h5py": "h5py",
    "hypothesis": "hypothesis",
    "jax": "jax",
    "keras": "keras",
    "markdown_it": "markdown_it_py",
    "numpy": "numpy",
    "pytest": "pytest",
    "setuptools": "setuptools",
    "sklearn": "scikit_learn",
    "sphinx": "sphinx",
    "tensorflow": "tensorflow",
    "tf_keras": "tf_keras",
    "tensorflow_text": "tensorflow_text",
}

# A benchmark of peers makes an environment of its own for them.
OUTSIDE = {"optax", "torch"}

TARGETS = build_file.read()

OWNER = {file: target.name for target in TARGETS for file in target.sources}


def expected_deps(target: build_file.Target) -> dict[str, str]:
    """The deps a target needs, each with a file that needs it."""
    needed: dict[str, str] = {}
    for file in sorted(target.sources):
        for imported in imported_files(file):
            if imported not in target.sources:
                needed.setdefault(f":{OWNER[imported]}", file)
        for package in imported_packages(file) - set(sys.stdlib_module_names) - OUTSIDE:
            assert package in DISTRIBUTIONS, (
                f"{file} imports {package}: name its distribution in {__name__}.DISTRIBUTIONS,"
                " setup.py and constraints.txt"
            )
            needed.setdefault(f"@pypi//{DISTRIBUTIONS[package]}", file)
    if target.rule == "py_test":
        # pytest itself, and what every test shares.
        needed.setdefault(":testing", "every py_test")
    return needed


@pytest.mark.parametrize("folder", SOURCE_FOLDERS)
def test_every_source_file_belongs_to_exactly_one_target(folder: str) -> None:
    for file in sources(folder):
        owners = [target.name for target in TARGETS if file in target.sources]
        place = file.rpartition("/")[0]
        assert len(owners) == 1, (
            f"{file} is in the targets {owners} of BUILD; it must be in one. For a new folder add"
            f' py_library(name = "{place.rpartition("/")[2]}", srcs = glob(["{place}/*.py"]),'
            " deps = [...]), or a py_test for a folder of tests"
        )


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_deps_are_the_imports(target: build_file.Target) -> None:
    needed = expected_deps(target)
    missing = [f'"{dep}" ({file} imports it)' for dep, file in needed.items()]
    missing = [line for line, dep in zip(missing, needed, strict=True) if dep not in target.deps]
    unused = [f'"{dep}"' for dep in target.deps if dep not in needed]
    assert not missing and not unused, (
        f'BUILD, {target.rule} "{target.name}": add to deps {", ".join(missing) or "nothing"};'
        f" take out {', '.join(unused) or 'nothing'}"
    )


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_every_target_has_sources(target: build_file.Target) -> None:
    assert target.sources, f'BUILD, {target.rule} "{target.name}" has no sources; take it out'


def test_libraries_depend_on_each_other_without_a_cycle() -> None:
    deps = {f":{target.name}": {dep for dep in target.deps if dep[0] == ":"} for target in TARGETS}
    while deps:
        free = [name for name, needed in deps.items() if not needed & deps.keys()]
        assert free, f"these targets of BUILD depend on each other in a circle: {sorted(deps)}"
        for name in free:
            del deps[name]
