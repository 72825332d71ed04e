"""Acting the moment a package has been imported, without importing it.

Answers: how to follow TensorFlow's import when somebody else decides whether and when it happens,
so that what is set before it (environment variables above all) still counts. It does not promise
anything about a package that is being imported at the time of the call.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any


def when_imported(name: str, act: Callable[[], None]) -> None:
    """Calls `act` once, right after the package is first imported; now, if it already is.

    Several actions for one package run in the order they were asked for. An error from `act`
    comes out of the import statement, which then counts as failed.

    Args:
        name: A top-level package, such as "tensorflow".
        act: What to do; it may import the package.
    """
    if name in sys.modules:
        act()
    else:
        sys.meta_path.insert(0, _Finder(name, act))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one package as the finders after it do, and sees to it that its loader acts."""

    def __init__(self, name: str, act: Callable[[], None]) -> None:
        self._name = name
        self._act = act

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name or self not in sys.meta_path:
            return None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                # Looking is not importing: the finder stays until the package really ran.
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, self._acted)
                return spec
        return None

    def _acted(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            self._act()


class _Loader(importlib.abc.Loader):
    """The package's own loader, with an action after the package has run."""

    def __init__(self, own: Any, acted: Callable[[], None]) -> None:
        self._own = own
        self._acted = acted

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        module: types.ModuleType | None = self._own.create_module(spec)
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        # The package is to see its own loader, as ever.
        module.__loader__ = self._own
        if module.__spec__ is not None:
            module.__spec__.loader = self._own
        self._own.exec_module(module)
        self._acted()

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._own, attribute)
