"""The order of a graph: each op after all that it waits for."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from tf_wu_shard.errors import WuShardError
from tf_wu_shard.graph.nodes import source_of
from tf_wu_shard.graph.op import Op, Value, parse_value


def ordered_ops(nodes: Iterable[Any]) -> list[Op]:
    """Turns NodeDefs into ops, each after everything it waits for.

    Raises:
        WuShardError: If an input names no op, a name occurs twice, or the graph has a cycle.
    """
    pending: dict[str, tuple[Any, list[str]]] = {}
    done: dict[str, Op] = {}
    # Most values are read several times.
    value_of = functools.cache(parse_value)
    for node in nodes:
        name, inputs = node.name, list(node.input)
        if name in pending or name in done:
            raise WuShardError(f"two ops are called {name!r}; names in a graph are unique")
        # A traced graph is in order already; only what stands before its inputs has to wait.
        op, ready = _op(name, node, inputs, done, value_of)
        if ready:
            done[name] = op
        else:
            pending[name] = (node, inputs)
    state: dict[str, bool] = dict.fromkeys(done, True)  # False: being visited, True: done
    for root in pending:
        stack = [root]
        while stack:
            name = stack[-1]
            if state.get(name):
                stack.pop()
                continue
            if name not in pending:
                raise WuShardError(f"an op reads {name!r}, which the graph does not have")
            node, inputs = pending[name]
            waiting = [s for s in map(source_of, inputs) if not state.get(s)]
            if not waiting:
                state[name] = True
                done[name], _ = _op(name, node, inputs, done, value_of)
                stack.pop()
                continue
            if name in state:
                raise WuShardError(f"the graph has a cycle through {name!r}")
            state[name] = False
            stack.extend(waiting)
    return list(done.values())


def _op(
    name: str,
    node: Any,
    inputs: list[str],
    done: dict[str, Op],
    value_of: Callable[[str], Value],
) -> tuple[Op, bool]:
    """The op of a NodeDef if it comes next, and whether all it waits for is `done`."""
    values: list[Value] = []
    controls: list[str] = []
    ready = True
    for text in inputs:
        if text[0] == "^":
            source = text[1:]
            controls.append(source)
        else:
            value = value_of(text)
            source = value.op
            values.append(value)
        ready = ready and source in done
    return (
        Op(name, node.op, tuple(values), tuple(controls), node.device, len(done), node),
        ready,
    )
