"""The tool writes a checkout's BUILD file from its folders and imports, or says what is wrong."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping

import pytest

from tools.build_file import main

FILES = {
    "tf_wu_shard/__init__.py": "from tf_wu_shard.graph import view\n",
    "tf_wu_shard/errors.py": "import sys\n",
    "tf_wu_shard/graph/__init__.py": "",
    "tf_wu_shard/graph/view.py": "import numpy.linalg\n\nfrom tf_wu_shard.errors import Lost\n",
    "tf_wu_shard/graph/op.py": "from tf_wu_shard.graph import view\n",
    "tests/__init__.py": "",
    "tests/conftest.py": "import pytest\n",
    "tests/pytest_main.py": "import pytest\n",
    "tests/graph/__init__.py": "",
    "tests/graph/view_test.py": "def test_later() -> None:\n    import tf_wu_shard.graph.view\n",
    "tools/__init__.py": "",
    "tools/proof/__init__.py": "from tests.graph.view_test import test_later\n",
}


def _checkout(folder: pathlib.Path, changed: Mapping[str, str]) -> pathlib.Path:
    for file, text in {**FILES, **changed}.items():
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def test_a_folder_is_a_target_whose_deps_are_its_imports(tmp_path: pathlib.Path) -> None:
    assert main([], _checkout(tmp_path, {})) == 0
    text = (tmp_path / "BUILD").read_text(encoding="utf-8")
    assert (
        """
py_library(
    name = "graph",
    srcs = glob(["tf_wu_shard/graph/*.py"]),
    deps = [
        ":errors",
        "@pypi//numpy",
    ],
)
"""
        in text
    )
    assert (
        """
py_test(
    name = "tests_graph",
    srcs = glob(["tests/graph/*.py"]) + ["tests/pytest_main.py"],
    args = ["tests/graph"],
    main = "tests/pytest_main.py",
    deps = [
        ":graph",
        ":testing",
    ],
)
"""
        in text
    )


def test_a_module_beside_the_folders_is_a_target_of_its_own(tmp_path: pathlib.Path) -> None:
    main([], _checkout(tmp_path, {}))
    text = (tmp_path / "BUILD").read_text(encoding="utf-8")
    assert 'name = "errors",\n    srcs = ["tf_wu_shard/errors.py"],\n)' in text
    assert (
        'name = "tf_wu_shard",\n    srcs = ["tf_wu_shard/__init__.py"],\n    deps = [":graph"],\n)'
    ) in text


def test_a_library_made_of_tests_is_for_tests_alone(tmp_path: pathlib.Path) -> None:
    main([], _checkout(tmp_path, {}))
    text = (tmp_path / "BUILD").read_text(encoding="utf-8")
    assert 'name = "tools_proof",\n    testonly = True,' in text
    assert text.count("testonly") == 1


def test_the_check_compares_and_writes_nothing(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = _checkout(tmp_path, {})
    assert main(["--check"], root) == 1
    assert "python -m tools.build_file writes it" in capsys.readouterr().err
    assert not (root / "BUILD").exists()
    assert main([], root) == main(["--check"], root) == 0


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("tf_wu_shard/errors.py", "x = 1\ndef (\n", "tf_wu_shard/errors.py:2 is no Python"),
        ("tf_wu_shard/errors.py", "from . import graph\n", "errors.py:1 has a relative import"),
        ("tools/new.py", "\nimport tools.lost\n", "tools/new.py:2 imports tools.lost, which does"),
        ("tools/new.py", "import lost_library\n", "imports lost_library: name the distribution"),
        ("tf_wu_shard/errors.py", "import tf_wu_shard\n", "circle: :"),
    ],
)
def test_imports_that_cannot_be_followed_are_one_line_of_error(
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    file: str,
    text: str,
    message: str,
) -> None:
    root = _checkout(tmp_path, {file: text})
    assert main([], root) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("build_file: ") and message in line
    assert not (root / "BUILD").exists()
