"""Weights whose copies a function moves apart, as in local steps between two averages.

A sharded update makes every copy of what its owner's copy holds. So a weight that a function has
been seen to move apart is left to each replica, and where an update of it is in shards already, it
is said that its copies will be made alike again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any

from absl import logging

from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.step.own_values import written_with_own_values

# Noted on a variable: the function that moves its copies apart; the one that updates it in shards.
_APART = "_wu_shard_copies_apart"
_IN_SHARDS = "_wu_shard_updated_by"


def notice(
    function: str,
    view: GraphView,
    variables: Mapping[str, Any],
    alike: Set[str] = frozenset(),
    *,
    own_inputs: bool = True,
) -> None:
    """Notes the trained variables that a function moves apart.

    Args:
        function: Its name.
        view: What it holds.
        variables: The distributed variables, by key.
        alike: Keys of those that it is proved to write alike.
        own_inputs: See `own_values.written_with_own_values`.
    """
    weights = {r.key for r in view.variables.values() if r.trainable and r.mirrored}
    asked = (weights & variables.keys()) - alike
    found = written_with_own_values(view, asked, own_inputs=own_inputs) if asked else {}
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


def moved_apart_by(variable: Any) -> str | None:
    """The function that moves the copies of a variable apart, as far as one was seen."""
    return getattr(variable, _APART, None)


def note_update(function: str, variables: Iterable[Any]) -> None:
    """Notes that a function updates variables in shards."""
    for variable in variables:
        setattr(variable, _IN_SHARDS, function)
