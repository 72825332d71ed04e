"""Which component of its variable a handle is, in a function that holds copies for all replicas.

A SavedModel of a `MirroredStrategy` binds a function to the same variable once for each replica. Of
variables whose components the file keeps (`VariablePolicy.EXPAND_DISTRIBUTED_VARIABLES`) the device
of the ops that write by a handle shows which component it is; without them nothing does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.model_files.types import ModelVariable
from tf_wu_shard.rules.variables import READ


def components(nodes: Iterable[Any], handles: Mapping[str, ModelVariable]) -> dict[str, int]:
    """Finds which component each handle is.

    Args:
        nodes: The function's NodeDefs, calls that take a handle written out.
        handles: The variables by the names of what yields their handles.

    Returns:
        For each handle of a variable of several components the number of the component; {} where
        the files do not keep them, or the ops do not agree with them.
    """
    places: dict[str, set[str]] = {
        name: set() for name, variable in handles.items() if len(variable.devices) > 1
    }
    written: set[str] = set()
    for node in nodes:
        for text in places.keys() & set(node.input):
            places[text] |= {node.device} - {""}
            if node.op != READ:
                written.add(text)
    found: dict[str, int] = {}
    for name, own in places.items():
        if own:
            (device, *others), devices = own, handles[name].devices
            if others or device not in devices:
                return {}
            found[name] = devices.index(device)
    # Components that are only read hold the same value: which of them is which matters to nobody.
    for name in [name for name in places if name not in found and name not in written]:
        taken = {found[other] for other in found if handles[other].key == handles[name].key}
        free = [n for n in range(len(handles[name].devices)) if n not in taken]
        if free:
            found[name] = free[0]
    distinct = {(handles[name].key, number) for name, number in found.items()}
    return found if len(distinct) == len(found) == len(places) else {}


def with_components(
    view: GraphView, found: Mapping[str, int], handles: Mapping[str, ModelVariable]
) -> GraphView:
    """A view whose handles are components.

    Args:
        view: The view.
        found: What `components` found.
        handles: The variables by the names of what yields their handles.
    """
    if not found:
        return view
    refs = {
        name: dataclasses.replace(
            ref,
            replica=found[name],
            num_replicas=len(handles[name].devices),
            device=handles[name].devices[found[name]],
            mirrored=handles[name].mirrored,
        )
        if name in found
        else ref
        for name, ref in view.variables.items()
    }
    return view.with_variables(refs)
