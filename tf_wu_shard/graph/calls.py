"""Which ops call functions of the graph's library, and which functions those are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tf_wu_shard.graph.op import attribute_in
from tf_wu_shard.reachable import reachable

# Which attributes of a calling op name the callee, and at which of its operands the callee's
# arguments begin.
_CALLS: dict[str, tuple[tuple[str, ...], int]] = {
    "PartitionedCall": (("f",), 0),
    "StatefulPartitionedCall": (("f",), 0),
    "If": (("then_branch", "else_branch"), 1),
    "StatelessIf": (("then_branch", "else_branch"), 1),
    "Case": (("branches",), 1),
    "StatelessCase": (("branches",), 1),
    "While": (("cond", "body"), 0),
    "StatelessWhile": (("cond", "body"), 0),
}

CALLS = frozenset(_CALLS)

# The calls that run one function once, one of two, one of two or of a list, and one again and
# again.
PLAIN_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
IFS = frozenset({"If", "StatelessIf"})
BRANCHES = IFS | {"Case", "StatelessCase"}
LOOPS = frozenset({"While", "StatelessWhile"})

# The branches that TensorFlow makes where a function may have an effect.
STATEFUL_BRANCHES = frozenset({"If", "Case"})


def is_call(op_type: str) -> bool:
    """Whether ops of this type hand their operands to functions of the graph's library."""
    return op_type in _CALLS


def first_argument(op_type: str) -> int:
    """At which operand of an op that calls functions their arguments begin."""
    return _CALLS[op_type][1]


def callees(node: Any) -> list[tuple[str, list[str]]]:
    """The functions that a call may run, by name: for each attribute that names any, those.

    Args:
        node: The NodeDef of an op of `CALLS`.
    """
    return [(key, names_in(attribute_in(node.attr, key))) for key in _CALLS[node.op][0]]


def callee_names(node: Any) -> list[str]:
    """Names of all functions that a call may run, see `callees`."""
    return [name for _, names in callees(node) for name in names]


def named_by(node: Any) -> Iterator[tuple[str, list[str]]]:
    """The functions that a node of any op names: for each attribute that names any, those."""
    for key, attribute in node.attr.items():
        names = names_in(attribute)
        if names:
            yield key, names


def all_named_by(node: Any) -> list[str]:
    """Names of all functions that a node of any op names, see `named_by`."""
    return [name for _, names in named_by(node) for name in names]


def run_by(node: Any, definitions: Mapping[str, Any]) -> list[str]:
    """Names of all functions that a node of any op may run, see `reached_from`."""
    return reached_from(all_named_by(node), definitions)


def reached_from(names: Iterable[str], definitions: Mapping[str, Any]) -> list[str]:
    """Names of functions, and of all that these may run.

    Args:
        names: Where to begin.
        definitions: The FunctionDefs, by name.
    """

    def further(name: str) -> list[str]:
        definition = definitions.get(name)
        nodes = definition.node_def if definition is not None else ()
        return [called for inner in nodes for called in all_named_by(inner)]

    return [*reachable(names, further)]


def names_in(attribute: Any) -> list[str]:
    """Names of the functions that an AttrValue holds."""
    return [function.name for function in _functions_in(attribute)]


def rename(attribute: Any, names: Iterable[str]) -> None:
    """Has an AttrValue hold other functions in place of those that it holds.

    Args:
        attribute: The AttrValue; changed here.
        names: Their names, as many as it holds.
    """
    for function, name in zip(_functions_in(attribute), names, strict=True):
        function.name = name


def _functions_in(attribute: Any) -> list[Any]:
    return [attribute.func] if attribute.HasField("func") else list(attribute.list.func)
