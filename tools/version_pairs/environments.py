"""One pair's environment: made, the package installed from a wheel, tried, taken away."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence

from tools.version_pairs.table import AGREES, NO_WHEELS, NOT_RUN, PACKAGES, Row

ROOT = pathlib.Path(__file__).resolve().parents[2]

# All of private TensorFlow that is used; every way to train on both grounds, bit for bit; Keras 2;
# what is stored, saved and loaded; emulated TPUs; graphs of TensorFlow 1; files.
SAMPLE = (
    "tests/tensorflow_private",
    "tests/graph_pass_test.py",
    "tests/equivalence/training_scenarios_test.py",
    "tests/equivalence/tf_keras_scenarios_test.py",
    "tests/storage/keras_files_test.py",
    "tests/storage/sharded_slot_test.py",
    "tests/emulation/programs_test.py",
    "tests/graph_def/training_test.py",
    "tests/inspection/inspect_test.py",
)

# What an environment takes is 2.3 GiB, and twice as much while it is made.
FREE_BYTES = 8 << 30

_VERSIONS = (
    "import importlib.metadata, json, platform, sys;"
    "print(json.dumps([platform.python_version(),"
    " *(importlib.metadata.version(name) for name in sys.argv[1:])]))"
)


class EnvironmentFailure(Exception):
    """An environment could not be made for another reason than missing wheels."""


@dataclasses.dataclass(frozen=True)
class Environments:
    """Makes environments, one after the other, in the same place.

    Attributes:
        folder: Where all is, for as long as it is used.
        wheel: The package.
        tests: A folder with the tests alone: no package lies beside them, so that the installed one
            is tested.
    """

    folder: pathlib.Path
    wheel: pathlib.Path
    tests: pathlib.Path

    @classmethod
    def in_folder(cls, folder: pathlib.Path) -> Environments:
        """Builds the package, and copies the tests, into an empty folder."""
        # Building leaves folders behind, so it is a copy that is built.
        source = _copied(folder / "source", ("tf_wu_shard", "models"), ("setup.py", "README.md"))
        tests = _copied(folder / "tests_alone", ("tests", "tools"))
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
        command += ["--no-build-isolation", "--wheel-dir", str(folder), str(source)]
        subprocess.run(command, check=True)
        (wheel,) = folder.glob("tf_wu_shard-*.whl")
        return cls(folder, wheel, tests)

    def tried(self, tensorflow: str, interpreter: pathlib.Path, *, with_demo: bool) -> Row:
        """Makes the environment of a pair, runs the sample in it and takes it away.

        Args:
            tensorflow: The minor version.
            interpreter: The interpreter.
            with_demo: Whether the demo is run too.

        Returns:
            What came of it.

        Raises:
            EnvironmentFailure: The environment could not be made.
        """
        if shutil.disk_usage(self.folder).free < FREE_BYTES:
            raise EnvironmentFailure(f"less than {FREE_BYTES >> 30} GiB are free in {self.folder}")
        place = self.folder / "environment"
        try:
            subprocess.run([interpreter, "-m", "venv", place], check=True)
            python = str(place / "bin" / "python")
            missing = _install(python, tensorflow, self.wheel)
            # Of what is not installed the interpreter says nothing.
            packages = ("tensorflow", *PACKAGES) if missing is None else ()
            version, *installed = json.loads(_output([python, "-c", _VERSIONS, *packages]))
            if missing is not None:
                return Row(tensorflow, version, sample=f"{NO_WHEELS}{missing}")
            sample = _sample(python, self.tests)
            demo = _demo(place / "bin" / "wu-shard", self.folder) if with_demo else NOT_RUN
            return Row(installed[0], version, tuple(installed[1:]), sample, demo)
        finally:
            shutil.rmtree(place, ignore_errors=True)


def _copied(
    target: pathlib.Path, folders: Sequence[str], files: Sequence[str] = ()
) -> pathlib.Path:
    """A folder with copies of some of the checkout's."""
    target.mkdir()
    for file in ("pyproject.toml", *files):
        shutil.copy(ROOT / file, target)
    for name in folders:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, target / name, ignore=ignored)
    return target


def _install(python: str, tensorflow: str, wheel: pathlib.Path) -> str | None:
    """Installs the package and what goes with a TensorFlow; returns what has no wheels."""
    together = [f"{name}=={tensorflow}.*" for name in ("tensorflow", "tensorflow-text", "tf-keras")]
    # Most of what is installed is never imported, so nothing is compiled ahead.
    command = [python, "-m", "pip", "install", "--quiet", "--no-compile", "--only-binary", ":all:"]
    ours = f"tf-wu-shard[demo,test] @ {wheel.as_uri()}"
    done = subprocess.run([*command, *together, ours], capture_output=True, text=True)
    if done.returncode == 0:
        return None
    missing = re.search(r"No matching distribution found for ([\w-]+)", done.stderr)
    if missing is None:
        raise EnvironmentFailure(done.stderr[-3000:])
    return missing[1]


def _sample(python: str, tests: pathlib.Path) -> str:
    """What pytest counted, such as "600 passed, 1 skipped"."""
    command = [python, "-m", "pytest", "-q", "--disable-warnings", "-p", "no:cacheprovider"]
    command += ["-m", "not slow", *SAMPLE]
    done = subprocess.run(command, cwd=tests, env=_alone(), capture_output=True, text=True)
    *_, last = done.stdout.splitlines() or [""]
    counted = {what: int(count) for count, what in re.findall(r"(\d+) ([a-z]+)", last)}
    kinds = ("passed", "failed", "error", "errors", "skipped")
    if done.returncode != 0:
        print(done.stdout[-20000:], done.stderr[-3000:], file=sys.stderr)
    if not counted:
        return f"ended with status {done.returncode}"
    return ", ".join(f"{counted[kind]} {kind}" for kind in kinds if kind in counted)


def _demo(command: pathlib.Path, folder: pathlib.Path) -> str:
    out = folder / "demo"
    done = subprocess.run(
        [command, "demo", "--quick", "--out", out],
        cwd=folder,
        env=_alone(),
        capture_output=True,
        text=True,
    )
    shutil.rmtree(out, ignore_errors=True)
    if done.returncode == 0:
        return AGREES
    print(done.stdout[-5000:], done.stderr[-5000:], file=sys.stderr)
    return f"ended with status {done.returncode}"


def _output(command: Sequence[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, env=_alone()).stdout


def _alone() -> dict[str, str]:
    """The environment's own packages are to be found, wherever this process found its."""
    kept = {key: value for key, value in os.environ.items() if key not in _OF_OURS}
    return {**kept, "TF_CPP_MIN_LOG_LEVEL": "3"}


_OF_OURS = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
