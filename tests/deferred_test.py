"""An action waits for a package's import, and only for that."""

from __future__ import annotations

import importlib
import importlib.util
import pathlib
import sys
import uuid
from collections.abc import Iterator

import pytest

from tf_wu_shard.deferred import when_imported


@pytest.fixture
def package(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package that can be imported and was not yet."""
    name = f"package_{uuid.uuid4().hex}"
    (tmp_path / f"{name}.py").write_text("own_loader = __spec__.loader\nready = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    yield name
    sys.modules.pop(name, None)


def test_an_action_waits_for_the_import_and_finds_the_package_ready(package: str) -> None:
    seen: list[bool] = []
    when_imported(package, lambda: seen.append(importlib.import_module(package).ready))
    assert seen == []
    importlib.import_module(package)
    assert seen == [True]


def test_an_action_comes_at_once_for_a_package_that_is_there(package: str) -> None:
    importlib.import_module(package)
    acted: list[int] = []
    when_imported(package, lambda: acted.append(1))
    assert acted == [1]


def test_looking_for_the_package_is_not_importing_it(package: str) -> None:
    acted: list[int] = []
    when_imported(package, lambda: acted.append(1))
    assert importlib.util.find_spec(package) is not None
    assert acted == []
    importlib.import_module(package)
    assert acted == [1]


def test_several_actions_run_in_their_order_and_once(package: str) -> None:
    acted: list[int] = []
    for number in (1, 2, 3):
        when_imported(package, lambda number=number: acted.append(number))  # type: ignore[misc]
    module = importlib.import_module(package)
    importlib.reload(module)
    del sys.modules[package]
    importlib.import_module(package)
    assert acted == [1, 2, 3]


def test_the_package_sees_its_own_loader_and_no_finder_stays(package: str) -> None:
    before = list(sys.meta_path)
    when_imported(package, lambda: None)
    assert sys.meta_path != before
    module = importlib.import_module(package)
    assert sys.meta_path == before
    assert module.__spec__ is not None
    assert module.own_loader is module.__loader__ is module.__spec__.loader
    assert type(module.own_loader).__module__.startswith(("importlib", "_frozen_importlib"))


def test_a_package_that_failed_to_import_may_be_tried_again(
    package: str, tmp_path: pathlib.Path
) -> None:
    source = tmp_path / f"{package}.py"
    working = source.read_text()
    source.write_text("raise RuntimeError('not yet, and longer than the source that works')\n")
    acted: list[int] = []
    when_imported(package, lambda: acted.append(1))
    with pytest.raises(RuntimeError, match="not yet"):
        importlib.import_module(package)
    assert acted == []
    source.write_text(working)
    importlib.invalidate_caches()
    importlib.import_module(package)
    assert acted == [1]


def test_an_error_of_the_action_comes_out_of_the_import(package: str) -> None:
    def refuse() -> None:
        raise ValueError("refused")

    when_imported(package, refuse)
    with pytest.raises(ValueError, match="refused"):
        importlib.import_module(package)
