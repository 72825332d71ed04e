"""Which updates XLA compiles, and why not the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from tf_wu_shard import refusals
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.layout import AnyLayout, OwnerLayout, RowLayout
from tf_wu_shard.preferences import Preferences
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.weight_update.analysis.types import Analysis, WeightUpdate
from tf_wu_shard.weight_update.plan.types import VariablePlan

# How XLA compiles an update that it compiles in the step as it was traced.
AS_ASKED_FOR = "as asked for"


def with_compiling(
    variables: Iterable[VariablePlan], how: str, options: ShardingOptions, preferences: Preferences
) -> tuple[VariablePlan, ...]:
    """The same updates, each with how XLA compiles it, or why it does not.

    Args:
        variables: The updates.
        how: See `how_compiled`.
        options: What the user asked for.
        preferences: What holds where the user did not say.
    """
    found = []
    for variable in variables:
        if variable.update.compiled_in:
            found.append(dataclasses.replace(variable, compiled=AS_ASKED_FOR))
            continue
        why = against_compiling(variable.layout, options, preferences) if how else None
        own = "" if why is not None else how
        found.append(dataclasses.replace(variable, compiled=own, open_because=why))
    return tuple(found)


def how_compiled(analysis: Analysis, options: ShardingOptions, preferences: Preferences) -> str:
    """How XLA compiles updates: "exact", "fast", or "" where it compiles none.

    Args:
        analysis: What the graph holds.
        options: What the user asked for.
        preferences: What holds where the user did not say.
    """
    devices = {device for update in analysis.updates for device in update.devices}
    # Bits are proved on CPUs alone.
    on_cpus = all("device:cpu:" in device.lower() for device in devices)
    if preferences.min_compiled is None or not on_cpus:
        return ""
    return "exact" if options.compile_update is None else options.compile_update or ""


def against_compiling(
    layout: AnyLayout | OwnerLayout, options: ShardingOptions, preferences: Preferences
) -> Refusal | None:
    """Why XLA compiles nothing of an update though it compiles others; None where it may.

    Args:
        layout: How the weight is cut.
        options: What the user asked for: whoever names a way has all compiled.
        preferences: What holds where the user did not say.
    """
    if isinstance(layout, OwnerLayout):
        return refusals.Compiling.LEFT_TO_AN_OWNER.at()
    if isinstance(layout, RowLayout):
        return refusals.Compiling.ROWS_LOOKED_UP.at()
    limit = preferences.min_compiled or 0
    if options.compile_update is None and layout.shard_elements < limit:
        return refusals.Compiling.SMALL_SHARDS.at(limit=limit)
    return None


def against_sharing_compiled(update: WeightUpdate, *, by_rows: bool) -> Refusal | None:
    """Why an update that XLA compiles in the step as it was traced is not shared.

    What one replica does, or row by row, is not handed to XLA, and would be rounded otherwise.

    Args:
        update: The update.
        by_rows: Whether a sparse gradient feeds it.
    """
    if not update.compiled_in:
        return None
    if update.whole:
        return refusals.Plan.COMPILED_WHOLE.at(what="done by one replica")
    if by_rows:
        return refusals.Plan.COMPILED_WHOLE.at(what="rows of a table")
    if update.functions:
        return refusals.Plan.COMPILED_WHOLE.at(what="a function of whole tensors")
    return None
