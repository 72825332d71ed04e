"""The root BUILD file as data: its targets, their sources and their deps.

Reads the part of the language that BUILD is written in: calls with literal strings and lists,
`glob`, and sources that another rule makes.
"""

from __future__ import annotations

import ast
import dataclasses

from tests.project.imports import ROOT

RULES = ("py_library", "py_binary", "py_test")


@dataclasses.dataclass(frozen=True)
class Target:
    """One py_* rule; sources are files relative to the root."""

    rule: str
    name: str
    sources: frozenset[str]
    deps: tuple[str, ...]


def read() -> tuple[Target, ...]:
    """The py_* targets of the BUILD file, in its order."""
    calls = [
        node.value
        for node in ast.parse((ROOT / "BUILD").read_text(encoding="utf-8"), "BUILD").body
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ]
    made: dict[str, frozenset[str]] = {}
    targets = []
    for call in calls:
        rule = call.func.id if isinstance(call.func, ast.Name) else ""
        fields = {field.arg: field.value for field in call.keywords}
        if rule not in (*RULES, "genrule"):
            continue
        name = _text(fields["name"])
        sources = frozenset(
            file for entry in _strings(fields["srcs"]) for file in made.get(entry, {entry})
        )
        if rule == "genrule":
            made[f":{name}"] = sources
        else:
            if rule == "py_test":
                # The program that runs the tests is a source of every py_test, by Bazel's rule.
                sources -= {_text(fields["main"])}
            deps = tuple(_strings(fields["deps"])) if "deps" in fields else ()
            targets.append(Target(rule, name, sources, deps))
    return tuple(targets)


def _text(node: ast.expr) -> str:
    value = ast.literal_eval(node)
    assert isinstance(value, str)
    return value


def _strings(node: ast.expr) -> list[str]:
    if isinstance(node, ast.BinOp):
        return _strings(node.left) + _strings(node.right)
    if isinstance(node, ast.Call):
        assert isinstance(node.func, ast.Name) and node.func.id == "glob"
        patterns = _strings(node.args[0])
        left_out = {
            file
            for field in node.keywords
            if field.arg == "exclude"
            for file in _strings(field.value)
        }
        return sorted(
            path.relative_to(ROOT).as_posix()
            for pattern in patterns
            for path in ROOT.glob(pattern)
            if path.relative_to(ROOT).as_posix() not in left_out
        )
    values = ast.literal_eval(node)
    assert isinstance(values, list)
    return [str(value) for value in values]
