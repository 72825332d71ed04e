"""What is built from a checkout is whole: models inside the package, the command, no strays."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest

from tests.project.imports import CHECKOUT, ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A wheel built from a copy of the checkout, as building leaves folders behind."""
    checkout = tmp_path_factory.mktemp("checkout")
    for file in ("setup.py", "pyproject.toml"):
        shutil.copy(ROOT / file, checkout)
    for folder in ("tf_wu_shard", "models", "tests", "tools"):
        if (ROOT / folder).is_dir():
            shutil.copytree(
                ROOT / folder, checkout / folder, ignore=shutil.ignore_patterns("__pycache__")
            )
    made = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(made), str(checkout)], check=True)
    (built,) = made.glob("tf_wu_shard-*.whl")
    return built


def test_the_wheel_holds_the_package_with_the_models_inside_and_nothing_else(
    wheel: pathlib.Path,
) -> None:
    wanted = {
        f"tf_wu_shard/{file}" if file.startswith("models/") else file
        for file in CHECKOUT.sources("tf_wu_shard", "models")
    }
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert {name for name in packed if name.endswith(".py")} == wanted
    assert {name.partition("/")[0] for name in packed} == {"tf_wu_shard"}
    assert "tf_wu_shard/py.typed" in packed


@pytest.fixture(scope="module")
def installed(wheel: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder that holds what the wheel installs."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    subprocess.run([*command, "--target", str(folder), str(wheel)], check=True)
    return folder


def test_models_are_imported_from_an_installed_wheel(
    installed: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    question = "import tf_wu_shard.models as m; print(m.__file__)"
    answer = subprocess.run(
        [sys.executable, "-c", question],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert pathlib.Path(answer.stdout.strip()) == installed / "tf_wu_shard/models/__init__.py"
    assert (installed / "bin/wu-shard").is_file()


@pytest.mark.slow
def test_an_installed_wheel_runs_the_demo_outside_of_the_checkout(
    installed: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    where = "import tf_wu_shard; print(tf_wu_shard.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    ran = [
        subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
        for arguments in (["-c", where], [str(installed / "bin/wu-shard"), "demo", "--quick"])
    ]
    assert pathlib.Path(ran[0].stdout.strip()).is_relative_to(installed)
    assert ran[1].returncode == 0, ran[1].stderr
    assert (tmp_path / "build/demo/report.html").is_file()


def test_models_are_imported_from_the_checkout(tmp_path: pathlib.Path) -> None:
    question = "import tf_wu_shard.models as m; print(m.__file__)"
    answer = subprocess.run(
        [sys.executable, "-c", question], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert pathlib.Path(answer.stdout.strip()) == ROOT / "models/__init__.py"
