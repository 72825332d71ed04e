"""A program cannot tell `wu-shard run` from the interpreter: each claim compares the two."""

from __future__ import annotations

import pathlib
import subprocess

import pytest

from tests.cli.command import python, wu_shard

SHOW = """\
import pickle, sys
def at():
    return __name__
class Thing:
    pass
main = sys.modules["__main__"]
print(sys.argv, sys.path[0], at(), __file__, __doc__, __package__, __cached__)
print(type(__loader__).__name__, __spec__ and __spec__.name, __builtins__.__name__)
print(sorted(vars()), main.Thing is Thing, type(pickle.loads(pickle.dumps(Thing()))) is Thing)
print(at.__code__.co_filename, at.__annotations__, "annotations" in vars())
def typed(x: int): ...
print(typed.__annotations__)
"""

FAIL = """\
import sys
class Odd(ValueError): pass
def inner(): raise Odd("the script's own")
how = sys.argv[1]
if how == "raise": inner()
if how == "chain":
    try: inner()
    except Odd as e: raise RuntimeError("then this") from e
if how == "status": sys.exit(7)
if how == "message": sys.exit("why it ended")
if how == "interrupt": raise KeyboardInterrupt
if how == "hook":
    sys.excepthook = lambda kind, error, tb: print("hooked", kind.__name__, tb.tb_lineno)
    inner()
if how == "library": __import__("json").loads("{")
"""


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """Scripts, one of them behind a link, and a package of modules."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/show.py").write_text(SHOW)
    (tmp_path / "link.py").symlink_to("scripts/show.py")
    (tmp_path / "fail.py").write_text(FAIL)
    (tmp_path / "broken.py").write_text("x = (\n")
    (tmp_path / "latin.py").write_bytes("# coding: latin-1\nprint('caf\u00e9')\n".encode("latin-1"))
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("import sys; print('parent sees', sys.argv)\n")
    (package / "__main__.py").write_text(SHOW)
    (package / "part.py").write_text(SHOW)
    (package / "needy.py").write_text("import no_such_dependency\n")
    return tmp_path


def _own_lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What the program itself wrote to standard error."""
    return [line for line in done.stderr.splitlines() if not line.startswith("wu-shard: ")]


def _same(folder: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    plain = python(*arguments, cwd=folder)
    ours = wu_shard("run", *arguments, cwd=folder)
    assert ours.stdout == plain.stdout
    assert ours.returncode == plain.returncode
    assert _own_lines(ours) == _own_lines(plain)
    return ours


@pytest.mark.parametrize(
    "arguments",
    [
        ("scripts/show.py", "--report", "a", "-m", "b", "--", "c"),
        ("link.py",),
        ("-m", "package.part", "--report", "a", "-m", "b"),
        ("-m", "package"),
        ("latin.py",),
    ],
    ids=" ".join,
)
def test_a_program_finds_what_the_interpreter_gives_it(
    folder: pathlib.Path, arguments: tuple[str, ...]
) -> None:
    assert _same(folder, *arguments).returncode == 0


@pytest.mark.parametrize(
    ("how", "status"),
    [
        ("raise", 1),
        ("chain", 1),
        ("status", 7),
        ("message", 1),
        ("interrupt", -2),
        ("hook", 1),
        ("library", 1),
    ],
)
def test_a_program_ends_as_under_the_interpreter(
    folder: pathlib.Path, how: str, status: int
) -> None:
    assert _same(folder, "fail.py", how).returncode == status


def test_a_syntax_error_shows_the_script_alone(folder: pathlib.Path) -> None:
    assert _same(folder, "broken.py").returncode == 1


def test_a_module_with_a_missing_dependency_says_which(folder: pathlib.Path) -> None:
    done = wu_shard("run", "-m", "package.needy", cwd=folder)
    assert done.returncode == 1
    assert "No module named 'no_such_dependency'" in done.stderr
    assert "tf_wu_shard" not in done.stderr


@pytest.mark.parametrize("name", ["absent", "package.absent", "absent.part", "scripts"])
def test_a_module_that_is_not_there_costs_one_line(folder: pathlib.Path, name: str) -> None:
    done = wu_shard("run", "-m", name, cwd=folder)
    assert done.returncode == 1
    (line,) = _own_lines(done)
    assert line.startswith("wu-shard run: error: ") and repr(name) in line
