"""Weights whose copies a function moves apart, as in local steps between two averages.

A sharded update makes every copy of what its owner's copy holds. So a weight that a function has
been seen to move apart is left to each replica, and where an update of it is in shards already, it
is said that its copies will be made alike again.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Any

from absl import logging

from tf_wu_shard.step import origins
from tf_wu_shard.step.capture import Captured
from tf_wu_shard.step.own_values import written_with_own_values
from tf_wu_shard.tensorflow_private import function_graph
from tf_wu_shard.tensorflow_private.distributed_variables import distributed_variable_of

# Noted on a variable: the function that moves its copies apart; the one that updates it in shards;
# one that writes it, of which those that call it know with what.
_APART = "_wu_shard_copies_apart"
_IN_SHARDS = "_wu_shard_updated_by"
_WRITTEN_WITHIN = "_wu_shard_written_within"


def notice(graph: Any, captured: Captured, alike: Set[str] = frozenset()) -> None:
    """Notes the trained variables that a function moves apart.

    Args:
        graph: The FuncGraph.
        captured: What it holds.
        alike: Keys of the variables that it is proved to write alike.
    """
    view, variables, function = captured.view, captured.variables, function_graph.title(graph)
    weights = {
        ref.key: handle
        for handle, ref in view.variables.items()
        if ref.trainable and ref.mirrored and ref.key in variables and ref.key not in alike
    }
    if not weights:
        return
    # A branch takes what the function around it has made, of which it does not know what it is.
    is_inner = function_graph.is_branch_or_body(graph)
    found = written_with_own_values(view, weights.keys(), own_inputs=not is_inner)
    for key, where in found.items():
        variable = variables[key]
        updating = getattr(variable, _IN_SHARDS, None)
        if updating is not None and not hasattr(variable, _APART):
            logging.warning(
                "%s writes weight %s with what each replica has of its own (%s), and %s, traced"
                " before, updates it in shards: it makes the copies alike at each step. Trace %s"
                " first for an update on each replica.",
                *(function, key, where, updating, function),
            )
        setattr(variable, _APART, function)
    copies = {ref.replica for ref in view.variables.values() if ref.key in weights}
    for key in weights.keys() - found.keys():
        handle = weights[key]
        # A function that has one copy of several is called for each.
        is_inner = is_inner or len(copies) < view.variables[handle].num_replicas
        if is_inner and any(origins.written_with(view, handle)):
            setattr(variables[key], _WRITTEN_WITHIN, function)


def is_written_within(handle: Any) -> bool:
    """Whether a function writes a weight, of which only those that call it know with what.

    Args:
        handle: The resource handle of one of its components.
    """
    found = distributed_variable_of(handle)
    return found is not None and hasattr(found[0], _WRITTEN_WITHIN)


def moved_apart_by(variable: Any) -> str | None:
    """The function that moves the copies of a variable apart, as far as one was seen."""
    return getattr(variable, _APART, None)


def note_update(function: str, variables: Iterable[Any]) -> None:
    """Notes that a function updates variables in shards."""
    for variable in variables:
        setattr(variable, _IN_SHARDS, function)
