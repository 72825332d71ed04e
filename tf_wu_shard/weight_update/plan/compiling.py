"""Which updates XLA compiles, and why not the others."""

from __future__ import annotations

from tf_wu_shard import refusals
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.layout import AnyLayout, OwnerLayout, RowLayout
from tf_wu_shard.preferences import Preferences
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.weight_update.analysis.types import Analysis


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
