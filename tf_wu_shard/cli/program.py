"""Running a user's program inside this process as the interpreter itself would run it.

Answers: what `python train.py ARGS` and `python -m package.train ARGS` set up and how they end,
for a program that cannot tell the difference: `__main__`, `sys.argv`, `sys.path[0]`, exit codes,
tracebacks without frames of ours. It does not promise folders, zip archives or standard input as
programs, and processes that the program spawns (not forks) are plain interpreters again.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import io
import os
import sys
import types
from collections.abc import Sequence
from typing import NoReturn


def run_script(path: str, arguments: Sequence[str]) -> None:
    """Runs a file as `python PATH ARGUMENTS` does.

    Args:
        path: The script, relative to the working directory or absolute.
        arguments: What the script finds in `sys.argv[1:]`.

    Raises:
        BaseException: Whatever the script raised and did not catch, `SystemExit` included.
    """
    filename = os.path.join(os.getcwd(), path)
    _enter(path, arguments, os.path.dirname(os.path.realpath(filename)))
    try:
        with io.open_code(filename) as file:
            # Without dont_inherit the script would be compiled under our __future__ imports.
            code = compile(file.read(), filename, "exec", dont_inherit=True)
        main = _fresh_main()
        main.__file__ = filename
        main.__loader__ = importlib.machinery.SourceFileLoader("__main__", filename)
        # The interpreter sets it for a script too, to None.
        main.__dict__["__cached__"] = None
        exec(code, main.__dict__)
    except BaseException as error:
        _raise_as_the_program(error)


def run_module(name: str, arguments: Sequence[str]) -> None:
    """Runs a module as `python -m NAME ARGUMENTS` does.

    Args:
        name: A module, or a package with a `__main__` module, found from the working directory.
        arguments: What the module finds in `sys.argv[1:]`.

    Raises:
        SystemExit: There is no such module; carries the message, so that the exit status is 1.
        BaseException: Whatever the module raised and did not catch, `SystemExit` included.
    """
    _enter("-m", arguments, os.getcwd())
    try:
        spec = _module_to_run(name)
        # Only loaders with get_code come this far.
        code = spec.loader.get_code(spec.name)  # type: ignore[union-attr]
        main = _fresh_main()
        main.__file__ = spec.origin
        main.__loader__ = spec.loader
        main.__package__ = spec.parent
        main.__spec__ = spec
        main.__dict__["__cached__"] = spec.cached
        sys.argv[0] = spec.origin or name
        exec(code, main.__dict__)
    except BaseException as error:
        _raise_as_the_program(error)


def _enter(name: str, arguments: Sequence[str], folder: str) -> None:
    sys.argv = [name, *arguments]
    # With -P the interpreter puts no folder in front, so there is none of ours to replace.
    if not sys.flags.safe_path:
        sys.path[0] = folder


def _fresh_main() -> types.ModuleType:
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=sys.modules["builtins"], __annotations__={})
    sys.modules["__main__"] = main
    return main


def _module_to_run(name: str) -> importlib.machinery.ModuleSpec:
    spec = _find(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = _find(f"{name}.__main__")
        if spec is None:
            raise SystemExit(
                f"wu-shard run: error: {name!r} is a package without a __main__ module"
            )
    if spec is None:
        raise SystemExit(f"wu-shard run: error: no module named {name!r}")
    if not hasattr(spec.loader, "get_code"):
        raise SystemExit(f"wu-shard run: error: {name!r} holds no Python code to run")
    return spec


def _find(name: str) -> importlib.machinery.ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        # A missing parent means no such module; anything else missing is the parent's own error.
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            return None
        raise


def _raise_as_the_program(error: BaseException) -> NoReturn:
    """Lets the interpreter end the process on `error`, showing only the program's own frames."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_globals is globals():
        traceback = traceback.tb_next
    # The program may have put a hook of its own there.
    shown_by = sys.excepthook

    def show(
        kind: type[BaseException], shown: BaseException, whole: types.TracebackType | None
    ) -> None:
        sys.excepthook = shown_by
        if shown is error:
            shown_by(kind, shown.with_traceback(traceback), traceback)
        else:
            shown_by(kind, shown, whole)

    sys.excepthook = show
    raise error
