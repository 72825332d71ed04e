"""Which functions a model's functions call, and how far that goes.

Functions that call themselves, or that call so many so often that writing them out would not end,
are found before anything follows their calls.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from tf_wu_shard.graph.calls import all_named_by
from tf_wu_shard.rules.writes import WRITES
from tf_wu_shard.tensorflow_private import function_graph

WRITERS = frozenset(WRITES)

# Deeper than any program that a person wrote.
_MOST_LEVELS = 40

# Calls written out may make this many times the ops that a file has: functions that call twice what
# calls twice would make a small file endless work. A few ops more are quickly looked at.
_MOST_TIMES = 16
_MOST_OPS_OF_ANY = 10_000


@dataclasses.dataclass(frozen=True)
class Reach:
    """What a function is, with all that it calls.

    Attributes:
        ops: How many ops it has, those of called functions counted with every call.
        levels: How many calls deep it goes.
        writes: Whether any of these ops may write a variable.
        refusal: Why its calls cannot be followed, or "".
    """

    ops: int
    levels: int
    writes: bool
    refusal: str


@functools.lru_cache(maxsize=4096)  # more than TensorFlow has ops; a file may name any
def _names_none(op_type: str) -> bool:
    """Whether an op of a known type has no attribute that names a function."""
    definition = function_graph.op_def(op_type)
    return definition is not None and not any("func" in a.type for a in definition.attr)


def called_by(node: Any) -> list[str]:
    """Names of the functions that a node may call by its attributes."""
    return [] if _names_none(node.op) else all_named_by(node)


class Calls:
    """The calls between functions.

    Attributes:
        callees: For each function, by name, the functions that it calls, once for each call.
        called: Names of all that are called by another.
    """

    def __init__(self, functions: Mapping[str, Any]) -> None:
        """Reads which function calls which.

        Args:
            functions: The FunctionDefs by name.
        """
        self._functions = functions
        self.callees: dict[str, tuple[str, ...]] = {}
        self._writes: dict[str, bool] = {}
        for name, function in functions.items():
            found = [
                callee
                for node in function.node_def
                for callee in (node.op, *called_by(node))
                if callee in functions
            ]
            self.callees[name] = tuple(found)
            self._writes[name] = any(node.op in WRITERS for node in function.node_def)
        self.called = frozenset(c for callees in self.callees.values() for c in callees)
        self._reach: dict[str, Reach] = {}
        self._ops = sum(len(function.node_def) for function in functions.values())
        self._most_ops = max(_MOST_TIMES * self._ops, _MOST_OPS_OF_ANY)

    def writes_itself(self, name: str) -> bool:
        """Whether one of a function's own ops writes a variable."""
        return self._writes[name]

    def reach(self, name: str) -> Reach:
        """What a function is, with all that it calls."""
        stack = [] if name in self._reach else [(name, iter(dict.fromkeys(self.callees[name])))]
        entered = {name}
        while stack:
            last, waiting = stack[-1]
            callee = next((c for c in waiting if c not in self._reach), None)
            if callee is None:
                self._reach.setdefault(last, self._sum(last))
                stack.pop()
            elif callee in entered:
                self._reach[callee] = Reach(0, 0, True, f"{callee!r} calls itself")
            else:
                entered.add(callee)
                stack.append((callee, iter(dict.fromkeys(self.callees[callee]))))
        return self._reach[name]

    def _sum(self, name: str) -> Reach:
        inner = [self._reach[callee] for callee in self.callees[name]]
        ops = len(self._functions[name].node_def) + sum(r.ops for r in inner)
        levels = 1 + max((r.levels for r in inner), default=0)
        refusal = next((r.refusal for r in inner if r.refusal), "")
        if levels > _MOST_LEVELS:
            refusal = refusal or f"calls of functions go more than {_MOST_LEVELS} levels deep"
        if ops > self._most_ops:
            refusal = refusal or (
                f"with all calls written out it has more than {self._most_ops} ops,"
                f" and the file has {self._ops}"
            )
        writes = self._writes[name] or any(r.writes for r in inner)
        return Reach(min(ops, self._most_ops + 1), levels, writes, refusal)
