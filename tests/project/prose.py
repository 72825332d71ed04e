"""What a module does with refusals, read from its syntax: what it makes, what it decides on.

Sentences of the catalogue are for people. A module that compares one, searches it or takes it apart
decides on prose, and breaks when somebody writes a better sentence.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TypeGuard

from tf_wu_shard import refusals
from tf_wu_shard.refusals import KINDS, Kind

# What holds a sentence, wherever a report or a refusal has one.
_HOLDERS = frozenset({"reason", "cure", "says", "whole_because"})

_LOOKS = (
    *("startswith", "endswith", "find", "rfind", "index", "rindex", "count", "replace"),
    *("partition", "rpartition", "split", "rsplit", "removeprefix", "removesuffix"),
)

# The words of the catalogue between its values; a single word is no sentence's alone.
_SENTENCES = tuple(
    part for kind in KINDS.values() for part in re.split(r"\{[^}]*\}", f"{kind.says}\n{kind.cure}")
)
_LEAST = 8


def matches_on_prose(tree: ast.Module) -> list[str]:
    """Where a module decides on the words of a refusal, each place as its source text.

    Args:
        tree: The module.
    """
    named = _named(tree)
    return [
        ast.unparse(node)
        for node in ast.walk(tree)
        if any(_is_prose(looked, named) or _is_sentence(looked) for looked in _looked_at(node))
    ]


def _looked_at(node: ast.AST) -> Iterator[ast.expr]:
    """What an expression compares, searches or takes apart."""
    if isinstance(node, ast.Compare):
        identity = all(isinstance(op, ast.Is | ast.IsNot) for op in node.ops)
        yield from () if identity else (node.left, *node.comparators)
    elif isinstance(node, ast.Match):
        yield node.subject
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        of_re = isinstance(node.func.value, ast.Name) and node.func.value.id == "re"
        if of_re or node.func.attr in ("match", "search", "fullmatch"):
            yield from node.args
        elif node.func.attr in _LOOKS:
            yield from (node.func.value, *node.args)


def _is_prose(node: ast.AST, named: set[str]) -> bool:
    """Whether an expression is a sentence of a refusal, or made of one."""
    if isinstance(node, ast.Attribute):
        return node.attr in _HOLDERS
    if isinstance(node, ast.Name):
        return node.id in named
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Constant) and node.slice.value in _HOLDERS
    if isinstance(node, ast.FormattedValue):
        return _is_prose(node.value, named) or _is_refusal(node.value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        is_text = node.func.id in ("str", "repr", "format")
        return is_text and any(_is_refusal(a) or _is_prose(a, named) for a in node.args)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return _is_prose(node.func.value, named)
    if isinstance(node, ast.JoinedStr | ast.BinOp | ast.BoolOp | ast.IfExp):
        return any(_is_prose(child, named) for child in ast.iter_child_nodes(node))
    return False


def _is_refusal(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name.endswith("refusal")


def _is_sentence(node: ast.expr) -> bool:
    """Whether a literal is taken from the catalogue."""
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return False
    words = node.value.strip()
    return (
        " " in words and len(words) >= _LEAST and any(words in sentence for sentence in _SENTENCES)
    )


def _named(tree: ast.Module) -> set[str]:
    """Names that stand for sentences somewhere in a module."""
    named = set(_HOLDERS)
    more = True
    while more:
        found = {
            target.id
            for node in ast.walk(tree)
            for target, value in _assigned(node)
            if isinstance(target, ast.Name) and _is_prose(value, named)
        }
        more = not found <= named
        named |= found
    return named


def _assigned(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    if isinstance(node, ast.Assign):
        yield from ((target, node.value) for target in node.targets)
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
        yield node.target, node.value


def misused_kinds(tree: ast.Module) -> list[str]:
    """Where a module makes a refusal otherwise than with all values that its kind needs.

    Args:
        tree: The module.

    Returns:
        A line for each: values that are missing or too many, a kind that the catalogue does not
        have, and whatever else than `refusals.group.KIND.at(...)` makes one, which nobody checks.
    """
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    wrong = [
        f"{ast.unparse(call)}: only the catalogue makes these"
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id in ("Refusal", "Kind")
    ]
    made = {id(call.func.value): call for call in calls if _is_at(call.func)}
    passed = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare | ast.Tuple | ast.Call)
        for child in ast.iter_child_nodes(node)
    }
    for node in ast.walk(tree):
        entry = _entry(node)
        if isinstance(entry, str):
            wrong.append(f"{entry}: the catalogue has no such kind")
        elif entry is not None and id(node) in made:
            call = made[id(node)]
            given = {keyword.arg for keyword in call.keywords}
            if given != entry.details or len(call.args) > 1:
                wrong.append(f"{ast.unparse(call)}: it needs {sorted(entry.details)}")
        elif entry is not None and id(node) not in passed:
            wrong.append(f"{ast.unparse(node)}: make the refusal here")
    return wrong


def kinds_named(tree: ast.Module) -> set[Kind]:
    """The kinds that a module names.

    Args:
        tree: The module.
    """
    return {kind for node in ast.walk(tree) if isinstance(kind := _entry(node), Kind)}


def _is_at(function: ast.expr) -> TypeGuard[ast.Attribute]:
    return isinstance(function, ast.Attribute) and function.attr == "at"


def _entry(node: ast.AST) -> Kind | str | None:
    """The kind that `refusals.group.KIND` names, or that text where there is none.

    None of any other expression, and of what else a group holds.
    """
    if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute)):
        return None
    root = node.value.value
    if not (isinstance(root, ast.Name) and root.id == "refusals" and node.attr.isupper()):
        return None
    group = getattr(refusals, node.value.attr, None)
    found = getattr(group, node.attr, ast.unparse(node))
    return found if isinstance(found, Kind | str) else None
