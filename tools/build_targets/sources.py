"""Which files of a checkout import which, read from their syntax without running them."""

from __future__ import annotations

import ast
import dataclasses
import functools
import pathlib
from typing import NamedTuple

_OURS = ("tf_wu_shard", "tests", "tools")


class SourceError(Exception):
    """A source file whose imports cannot be followed; the message names file, line and reason."""


class Import(NamedTuple):
    """One name of an import statement.

    Attributes:
        module: The module.
        name: What is taken from it, or None for `import module`.
        line: Where the statement begins.
    """

    module: str
    name: str | None
    line: int


@dataclasses.dataclass(frozen=True)
class Checkout:
    """The Python files of a checkout; files are named relative to its root.

    Attributes:
        root: Its folder.
    """

    root: pathlib.Path

    def sources(self, *folders: str) -> list[str]:
        """Python files under the given top-level folders, in order."""
        return sorted(
            path.relative_to(self.root).as_posix()
            for folder in folders
            for path in (self.root / folder).rglob("*.py")
        )

    def imports(self, file: str) -> tuple[Import, ...]:
        """All imports of a file, at any depth.

        Raises:
            SourceError: If the file is no Python, or an import is relative.
        """
        return _imports(self.root, file)

    def imported_files(self, file: str) -> set[str]:
        """The checkout's own files that a file imports.

        Raises:
            SourceError: If one does not exist, or the file's imports cannot be read.
        """
        found = set()
        for taken in self.imports(file):
            if not _is_ours(taken.module):
                continue
            # `from package import module` means the module, `from package import name` the package.
            target = taken.name and self._file_of(f"{taken.module}.{taken.name}")
            target = target or self._file_of(taken.module)
            if target is None:
                raise SourceError(
                    f"{file}:{taken.line} imports {taken.module}, which does not exist"
                )
            found.add(target)
        return found - {file}

    def imported_packages(self, file: str) -> set[str]:
        """The top-level names of other packages that a file imports, the standard library's too.

        Raises:
            SourceError: If the file's imports cannot be read.
        """
        return {
            taken.module.partition(".")[0]
            for taken in self.imports(file)
            if not _is_ours(taken.module)
        }

    def _file_of(self, module: str) -> str | None:
        parts = module.split(".")
        if parts[:2] == ["tf_wu_shard", "models"]:
            parts = parts[1:]
        for candidate in ("/".join(parts) + ".py", "/".join(parts) + "/__init__.py"):
            if (self.root / candidate).is_file():
                return candidate
        return None


@functools.cache
def _imports(root: pathlib.Path, file: str) -> tuple[Import, ...]:
    try:
        tree = ast.parse((root / file).read_text(encoding="utf-8"), file)
    except (SyntaxError, UnicodeDecodeError) as error:
        line = f":{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        what = error.msg if isinstance(error, SyntaxError) else str(error)
        raise SourceError(f"{file}{line} is no Python: {what}") from error
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [Import(alias.name, None, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level or not node.module:
                raise SourceError(
                    f"{file}:{node.lineno} has a relative import; name the whole module"
                )
            found += [Import(node.module, alias.name, node.lineno) for alias in node.names]
    return tuple(found)


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in _OURS
