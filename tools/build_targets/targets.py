"""The targets of the BUILD file: which there are follows from the folders, deps from the imports.

A folder is one library, or one test where it is a folder of tests. The modules that lie in
tf_wu_shard/ itself stand on different layers, so each is its own library. What no import says
stands in the tables below: distributions, data, the command.
"""

from __future__ import annotations

import dataclasses
import graphlib
import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping

from tools.build_targets.sources import Checkout, SourceError

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
    "tensorflow_text": "tensorflow_text",
    "tf_keras": "tf_keras",
}

# A benchmark of peers makes an environment of its own for them.
_IN_OTHER_ENVIRONMENTS = {"optax", "torch"}

MODELS, COMMAND, TESTING = "models", "wu-shard", "testing"

_COMMAND_FILE = "tf_wu_shard/cli/main.py"

# Runs the tests of a folder for a build tool that wants a program to call.
TEST_MAIN = "tests/pytest_main.py"

_SHARED_BY_TESTS = ("tests/__init__.py", "tests/conftest.py", TEST_MAIN)

_DATA = {
    # JAX finds libtpu, which has no Python names, in the processes that compile.
    "tpu_compiler": ("@pypi//libtpu",),
    "tests_coverage": ("docs/coverage.md",),
    "tests_docs": ("CONTRIBUTING.md", "Makefile", "README.md", ":docs"),
    "tests_real_page": ("docs/real_programs.md",),
    "tests_version_pairs": ("docs/versions.md",),
}


@dataclasses.dataclass(frozen=True)
class Target:
    """One py_* rule.

    Attributes:
        rule: "py_library", "py_binary" or "py_test".
        name: Its name.
        folder: Where its sources lie.
        sources: They, relative to the root.
        pattern: What a glob finds them by; "" where they are listed.
        left_out: What the glob would find besides.
        deps: Labels of the targets and distributions that the sources import.
        data: Labels of the other files that they read.
        testonly: Whether a library is made of what only tests may use.
    """

    rule: str
    name: str
    folder: str
    sources: tuple[str, ...]
    pattern: str = ""
    left_out: tuple[str, ...] = ()
    deps: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    testonly: bool = False


def targets_of(checkout: Checkout) -> tuple[Target, ...]:
    """The targets of a checkout's BUILD file, libraries before tests, each by its path.

    Raises:
        SourceError: If an import cannot be read or names nothing known, or targets depend on each
            other in a circle.
    """
    bare = list(_without_deps(checkout))
    owner = {file: target.name for target in bare for file in target.sources}
    deps = {target.name: _deps(checkout, target, owner) for target in bare}
    _refuse_circles(deps)
    of_tests = {f":{target.name}" for target in bare if target.folder.startswith("tests")}
    while more := {f":{n}" for n, needed in deps.items() if of_tests & set(needed)} - of_tests:
        of_tests |= more
    return tuple(
        dataclasses.replace(
            target,
            deps=deps[target.name],
            data=_DATA.get(target.name, ()),
            testonly=f":{target.name}" in of_tests and not target.folder.startswith("tests"),
        )
        for target in bare
    )


def _without_deps(checkout: Checkout) -> Iterator[Target]:
    """All targets, each with its sources."""
    for top in ("tf_wu_shard", MODELS, "docs", "tools", "tests"):
        for folder, found in itertools.groupby(
            sorted(checkout.sources(top), key=_folder_and_file), key=_folder
        ):
            files = tuple(found)
            name = folder.removeprefix("tf_wu_shard/").replace("/", "_")
            pattern = f"{folder}/*.py"
            if folder == "tf_wu_shard":
                yield from (
                    Target("py_library", _module_target(file), folder, (file,)) for file in files
                )
            elif folder == "tests":
                yield Target("py_library", TESTING, folder, _SHARED_BY_TESTS)
                own = tuple(file for file in files if file not in _SHARED_BY_TESTS)
                yield Target("py_test", name, folder, own, "tests/*_test.py")
            elif top == "tests":
                yield Target("py_test", name, folder, files, pattern)
            else:
                command = tuple(file for file in files if file == _COMMAND_FILE)
                if command:
                    yield Target("py_binary", COMMAND, folder, command)
                rest = tuple(file for file in files if file not in command)
                yield Target("py_library", name, folder, rest, pattern, command)


def _folder(file: str) -> str:
    return file.rpartition("/")[0]


def _folder_and_file(file: str) -> tuple[str, str]:
    return _folder(file), file


def _module_target(file: str) -> str:
    name = file.removeprefix("tf_wu_shard/").removesuffix(".py")
    return "tf_wu_shard" if name == "__init__" else name


def _deps(checkout: Checkout, target: Target, owner: Mapping[str, str]) -> tuple[str, ...]:
    """The labels that a target's sources import, ours first."""
    ours = {f":{TESTING}"} if target.rule == "py_test" else set()
    others = set()
    for file in target.sources:
        for imported in checkout.imported_files(file) - set(target.sources):
            if imported not in owner:
                raise SourceError(f"{file} imports {imported}, which belongs to no target")
            ours.add(f":{owner[imported]}")
        for package in checkout.imported_packages(file) - sys.stdlib_module_names:
            if package in _IN_OTHER_ENVIRONMENTS:
                continue
            if package not in DISTRIBUTIONS:
                raise SourceError(
                    f"{file} imports {package}: name the distribution that brings it in"
                    f" {__name__}.DISTRIBUTIONS, setup.py and constraints.txt"
                )
            others.add(f"@pypi//{DISTRIBUTIONS[package]}")
    return (*sorted(ours), *sorted(others))


def _refuse_circles(deps: Mapping[str, Iterable[str]]) -> None:
    known = {f":{name}": needed for name, needed in deps.items()}
    try:
        graphlib.TopologicalSorter(known).prepare()
    except graphlib.CycleError as error:
        circle = " needs ".join(reversed(error.args[1]))
        raise SourceError(f"targets depend on each other in a circle: {circle}") from error
