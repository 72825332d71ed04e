"""Weights whose copies a function moves apart, as in local steps between two averages.

A sharded update makes every copy of what its owner's copy holds. So a weight whose copies hold
different values when the step is traced is left to each replica, and so are one that a function has
been seen to move apart and one whose update reads such a variable. Where an update of it is in
shards already, it is said that its copies will be made alike again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Set
from typing import Any

from absl import logging

from tf_wu_shard import refusals
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.step import origins
from tf_wu_shard.step.capture import Captured
from tf_wu_shard.step.handed_inputs import own_inputs
from tf_wu_shard.step.own_values import written_with_own_values
from tf_wu_shard.storage import replica_values
from tf_wu_shard.tensorflow_private import function_graph
from tf_wu_shard.tensorflow_private.distributed_variables import (
    distributed_variable_of,
    noted_on,
    runs_for_one_replica,
)

# Noted on a variable: what says that its copies are apart; the function that updates it in shards;
# one that updates others in shards and reads it for that; one that writes it, of which those that
# call it know with what.
_APART = "_wu_shard_copies_apart"
_IN_SHARDS = "_wu_shard_updated_by"
_READ_BY = "_wu_shard_read_by"
_WRITTEN_WITHIN = "_wu_shard_written_within"

# What is so as a step is traced, and is asked again for the next.
_COMPARED = (refusals.Storage.COPIES_DIFFER, refusals.Storage.COPIES_READ)


def notice(
    graph: Any, captured: Captured, updates: Iterable[tuple[Set[str], Set[Value]]] = ()
) -> None:
    """Notes the variables that a function moves apart, and those of its updates that are so by now.

    Args:
        graph: The FuncGraph.
        captured: What it holds.
        updates: The updates that every replica is proved to do alike as far as what enters them is
            alike: for each the keys of its variables, and what enters.
    """
    updates = [*updates]
    _compare_copies(captured, concerned(captured.view, updates))
    # What it is handed by another function, that one knows.
    is_inner = function_graph.is_nested(graph)
    called_once = not is_inner and not runs_for_one_replica()
    own, function = own_inputs(graph, of_arguments=not is_inner), function_graph.title(graph)
    while True:
        apart = known_apart(captured)
        view, alike = with_those_apart(captured.view, apart), set[str]()
        for keys, entering in updates:
            if not apart or apart.isdisjoint(
                keys | origins.variables_behind(captured.view, entering)
            ):
                alike |= keys
        asked = {
            ref.key: handle
            for handle, ref in view.variables.items()
            if ref.mirrored and ref.key in captured.variables and ref.key not in alike
        }
        found = (
            written_with_own_values(view, asked.keys(), own, alike, called_once=called_once)
            if asked
            else {}
        )
        for key, where in found.items():
            read = view.variables[where].key if where in view.variables else ""
            _note(captured.variables[key], key, function, where, _why(captured, read, function))
        # What is read of these is a replica's own as well.
        if not found:
            break
    copies = {ref.replica for ref in view.variables.values() if ref.key in asked}
    for handle in asked.values():
        ref = view.variables[handle]
        # A function that has one copy of several is called for each.
        is_called = is_inner or len(copies) < ref.num_replicas
        if is_called and ref.trainable and any(origins.written_with(view, handle)):
            setattr(captured.variables[ref.key], _WRITTEN_WITHIN, function)


def concerned(view: GraphView, updates: Iterable[tuple[Set[str], Set[Value]]]) -> list[str]:
    """The mirrored variables that updates write and read, by key, see `notice`."""
    written, read = set[str](), set[Value]()
    for keys, entering in updates:
        written |= keys
        read |= entering
    mirrored = {ref.key for ref in view.variables.values() if ref.mirrored}
    return sorted(mirrored & (written | origins.variables_behind(view, read)))


def _compare_copies(captured: Captured, keys: Iterable[str]) -> None:
    """Notes the variables whose copies in this process hold different values.

    What was done to them is seen in no graph: eager code did it, or a function that was traced when
    the flag was off, or one of whose writes no rule tells what they do.

    Args:
        captured: What a function holds.
        keys: The variables, by key.
    """
    known = [captured.variables[key] for key in keys if key in captured.variables]
    whys = [why_apart(variable) for variable in known]
    asked = [v for v, why in zip(known, whys, strict=True) if why is None or why.kind in _COMPARED]
    for variable, differ in zip(asked, replica_values.which_differ(asked), strict=True):
        setattr(variable, _APART, refusals.Storage.COPIES_DIFFER.at() if differ else None)


def known_apart(captured: Captured) -> set[str]:
    """The variables that a function has, by key, whose copies were seen to be apart."""
    return {key for key, one in captured.variables.items() if why_apart(one) is not None}


def with_those_apart(view: GraphView, apart: Set[str]) -> GraphView:
    """The view, in which variables whose copies were moved apart, by key, are no mirrored ones."""
    if not apart:
        return view
    return view.with_variables(
        {
            handle: dataclasses.replace(ref, mirrored=False) if ref.key in apart else ref
            for handle, ref in view.variables.items()
        }
    )


def _why(captured: Captured, read: str, function: str) -> Refusal:
    """Why the copies of a variable come apart that a function writes.

    Args:
        captured: What the function holds.
        read: The key of the variable that it is written with; "" where it is more than that.
        function: The function's name.
    """
    why = why_apart(captured.variables[read]) if read in captured.variables else None
    if why is not None and why.kind in _COMPARED:
        return refusals.Storage.COPIES_READ.at(variable=read)
    return refusals.Storage.COPIES_APART.at(function=function)


def _note(variable: Any, key: str, function: str, where: str, why: Refusal) -> None:
    """Notes that a function moves a variable's copies apart, and says so where it is too late."""
    updating = noted_on(variable, _IN_SHARDS)
    if updating is not None and why_apart(variable) is None:
        logging.warning(
            "%s writes weight %s with what each replica has of its own (%s), and %s, traced"
            " before, updates it in shards: it makes the copies alike at each step. Trace %s"
            " first for an update on each replica.",
            *(function, key, where, updating, function),
        )
    reading = noted_on(variable, _READ_BY)
    if updating is None and reading is not None and why_apart(variable) is None:
        logging.warning(
            "%s writes %s with what each replica has of its own (%s), and %s, traced before, reads"
            " it for an update in shards: what that updates stays alike on all replicas. Trace %s"
            " first for an update on each replica.",
            *(function, key, where, reading, function),
        )
    setattr(variable, _APART, why)


def is_written_within(handle: Any) -> bool:
    """Whether a function writes a weight, of which only those that call it know with what.

    Args:
        handle: The resource handle of one of its components.
    """
    found = distributed_variable_of(handle)
    return found is not None and noted_on(found[0], _WRITTEN_WITHIN) is not None


def why_apart(variable: Any) -> Refusal | None:
    """What says that the copies of a variable are apart, as far as it was seen."""
    return noted_on(variable, _APART)


def note_reads(function: str, captured: Captured, outside: Iterable[Value]) -> None:
    """Notes that a function reads variables for updates in shards.

    Args:
        function: Its name.
        captured: What it holds.
        outside: What enters the updates.
    """
    for key in concerned(captured.view, [(set(), {*outside})]):
        if key in captured.variables:
            setattr(captured.variables[key], _READ_BY, function)


def note_update(function: str, variables: Iterable[Any]) -> None:
    """Notes that a function updates variables in shards."""
    for variable in variables:
        setattr(variable, _IN_SHARDS, function)
