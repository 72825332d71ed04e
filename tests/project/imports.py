"""Which files of the project import which, read from their syntax without running them."""

from __future__ import annotations

import ast
import pathlib
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[2]

SOURCE_FOLDERS = ("tf_wu_shard", "models", "tests", "tools")


def sources(*folders: str) -> list[str]:
    """Python files under the given top-level folders, relative to the root, in order."""
    return sorted(
        path.relative_to(ROOT).as_posix()
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
    )


def imported_names(file: str) -> Iterator[tuple[str, str | None]]:
    """All imports of a file, at any depth: (module, name taken from it or None)."""
    for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"), file)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, None
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, f"{file}:{node.lineno}: a relative import"
            for alias in node.names:
                yield node.module, alias.name


def imported_files(file: str) -> set[str]:
    """The project's own files that a file imports, relative to the root."""
    found = set()
    for module, name in imported_names(file):
        # `from package import module` means the module, `from package import name` the package.
        target = (name and _file_of(f"{module}.{name}")) or _file_of(module)
        if target is not None:
            found.add(target)
        else:
            assert not _is_ours(module), f"{file} imports {module}, which does not exist"
    return found - {file}


def imported_packages(file: str) -> set[str]:
    """The top-level names of other packages that a file imports, the standard library's too."""
    return {module.partition(".")[0] for module, _ in imported_names(file) if not _is_ours(module)}


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in ("tf_wu_shard", "tests", "tools")


def _file_of(module: str) -> str | None:
    if not _is_ours(module):
        return None
    parts = module.split(".")
    if parts[:2] == ["tf_wu_shard", "models"]:
        parts = parts[1:]
    for candidate in ("/".join(parts) + ".py", "/".join(parts) + "/__init__.py"):
        if (ROOT / candidate).is_file():
            return candidate
    return None
