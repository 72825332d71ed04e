"""Wishes of an op to be placed with others: the `loc:@name`s of its `_class`.

They name ops, so whatever copies nodes, renames them or leaves some out takes care of them here.
TensorFlow's importer refuses a graph in which an op that is wished for is missing, while functions
that TensorFlow traces itself have such wishes: what is captured goes by its name outside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_CLASS = "_class"
_WISH = b"loc:@"


def wishes(node: Any) -> tuple[str, ...]:
    """The names of the ops that a NodeDef wishes to be placed with."""
    # Asking a map of messages for what it lacks would add it.
    if _CLASS not in (attributes := node.attr):
        return ()
    return tuple(_name(s) for s in attributes[_CLASS].list.s if s.startswith(_WISH))


def rename_wishes(node: Any, name_now: Callable[[str], str | None]) -> None:
    """Lets the wishes of a NodeDef, which is changed, name the ops of the graph that it is now in.

    What is no such wish stays.

    Args:
        node: The NodeDef.
        name_now: From an op's name before to its name now; None where it is not in the graph.
    """
    if _CLASS not in node.attr:
        return
    kept: list[bytes] = []
    for text in node.attr[_CLASS].list.s:
        if not text.startswith(_WISH):
            kept.append(text)
        elif (now := name_now(_name(text))) is not None:
            kept.append(_WISH + now.encode())
    del node.attr[_CLASS]
    if kept:
        node.attr[_CLASS].list.s.extend(dict.fromkeys(kept))


def _name(text: bytes) -> str:
    # No op's name has bytes that are no UTF-8, so that what is put for them names none.
    return text.removeprefix(_WISH).decode(errors="backslashreplace")
