"""Which functions take part in rounds, and which ops call them."""

from __future__ import annotations

from tf_wu_shard.graph.calls import callee_names, is_call
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.partial_sums.rounds.registry import begun_rounds
from tf_wu_shard.partial_sums.rounds.shared import SharedRounds
from tf_wu_shard.reachable import reachable
from tf_wu_shard.tensorflow_private.python_calls import EAGER_CALL


def rounds_called_in(view: GraphView) -> list[SharedRounds]:
    """The rounds in which functions take part that a graph calls.

    Args:
        view: The graph.
    """
    tokens = {token for name in view.functions for token in _tokens_in(view, name)}
    return [one for one in begun_rounds() if not one.tokens.isdisjoint(tokens)]


def calls_of_rounds(view: GraphView) -> list[str]:
    """Names of the ops of a graph that call functions which take part in rounds.

    Args:
        view: The graph.
    """
    known = {token for one in begun_rounds() for token in one.tokens}

    def called(name: str) -> list[str]:
        nodes = view.functions[name].node_def if name in view.functions else ()
        return [callee for node in nodes if is_call(node.op) for callee in callee_names(node)]

    return [
        op.name
        for op in view
        if is_call(op.type)
        and any(
            not known.isdisjoint(_tokens_in(view, name))
            for name in reachable(callee_names(op.node), called)
        )
    ]


def _tokens_in(view: GraphView, name: str) -> set[str]:
    nodes = view.functions[name].node_def if name in view.functions else ()
    return {node.attr["token"].s.decode() for node in nodes if node.op == EAGER_CALL}
