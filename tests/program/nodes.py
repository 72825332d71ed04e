"""NodeDefs as text, one op a line as in `tests.graph.text_graph`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from tests.graph import text_graph


def nodes(text: str) -> list[Any]:
    """The ops of a graph; an attribute that begins with & names a function, others are types."""
    return [_node(line) for line in text.splitlines() if line.strip()]


def _node(line: str) -> Any:
    read = text_graph.node(line)
    made = tf.compat.v1.NodeDef(name=read.name, op=read.op, input=read.input)
    for key, attribute in read.attr.items():
        if attribute.HasField("func"):
            made.attr[key].func.name = attribute.func.name
        elif key == "dtype":
            made.attr[key].type = attribute.type
        elif key in ("Tin", "Tout") or "," in attribute.text:
            made.attr[key].list.type.extend(int(t) for t in attribute.text.split(","))
    return made


def written(found: Iterable[Any]) -> list[str]:
    """Nodes as lines, without attributes, in the order of their names."""
    return sorted(f"{node.name} = {node.op}({', '.join(node.input)})" for node in found)
