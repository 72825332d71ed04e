"""The plan: what will be sharded, how, and what will not be, and why. Frozen, printable data.

It names updates and reductions by their places in an analysis, so the rewrite takes graph, analysis
and plan; it decides nothing of what the plan says. The report is a summary of analysis and plan. A
plan is pinned to its graph by a fingerprint and survives a round trip through JSON.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from tf_wu_shard.layout import (
    AnyLayout,
    Layout,
    OwnerLayout,
    RowLayout,
    TileLayout,
    of_size,
    owner_layout,
)
from tf_wu_shard.refusals import Refusal, refusal_from
from tf_wu_shard.weight_update.plan.stacks import StackPlan

PLAN_VERSION = 10


@dataclasses.dataclass(frozen=True)
class SlotPlan:
    """A variable, slot or weight, that will live in shards."""

    variable: str
    layout: AnyLayout
    dtype: int


@dataclasses.dataclass(frozen=True)
class VariablePlan:
    """One sharded update.

    Attributes:
        variable: Key of the (first) weight.
        weights: Keys of the variables that every replica has whole after the update; slots that
            the step also reads elsewhere are among them.
        layout: How the weight, and with it its gradient and whatever has as many elements, is cut;
            of an update that one replica does, who that is.
        dtype: The DataType enum's number of the first gradient; of a sparse one, of its values.
        slots: The slots that will live in shards.
        sharded_weights: The same variables as in `weights`, where they will live in shards and are
            put together when the step reads them, not after the update; one of the two is empty.
        gather_dtype: The DataType enum's number of what the weight travels in from its shards; the
            other sharded weights travel in their own types.
        update: Position of the update in the analysis.
        reductions: Keys of the gradient reductions it consumes.
        bucket: The bucket it travels in.
        whole_because: Why its weights stay whole where the dialect would have them in shards, or
            None.
        other_layouts: For each other size that the update's variables have, how what is of that
            size is cut.
    """

    variable: str
    weights: tuple[str, ...]
    layout: AnyLayout
    dtype: int
    slots: tuple[SlotPlan, ...]
    sharded_weights: tuple[SlotPlan, ...]
    gather_dtype: int
    update: int
    reductions: tuple[int, ...]
    bucket: int
    whole_because: Refusal | None
    other_layouts: tuple[AnyLayout, ...] = ()

    def layout_of(self, size: int) -> AnyLayout:
        """How whatever has so many elements is cut."""
        return of_size((self.layout, *self.other_layouts), size)


def bucket_name(bucket: Sequence[VariablePlan]) -> str:
    """What to call variables that travel together."""
    names = list(dict.fromkeys(v.variable for v in bucket))
    return names[0] if len(names) == 1 else f"bucket_{bucket[0].bucket}"


@dataclasses.dataclass(frozen=True)
class LeftAlone:
    """A variable whose update stays as it was.

    Attributes:
        variable: Its key.
        refusal: Why.
        reductions: Keys of the gradient reductions that feed it.
    """

    variable: str
    refusal: Refusal
    reductions: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class ShardingPlan:
    """What to do with one graph.

    Attributes:
        version: Version of this format.
        fingerprint: The graph it was made for; it fits no other.
        num_replicas: Replicas that share each update.
        variables: The sharded updates, in the order of the analysis.
        summed_whole: Keys of the reductions that are not sharded and lose their carrier, as a
            sharded one travelled in it too; an all-reduce of their own takes its place.
        left_alone: What stays as it was.
        stacks: Who computes the matrix functions of sharded updates.
    """

    version: int
    fingerprint: str
    num_replicas: int
    variables: tuple[VariablePlan, ...]
    summed_whole: tuple[int, ...]
    left_alone: tuple[LeftAlone, ...]
    stacks: tuple[StackPlan, ...] = ()

    @property
    def in_shards(self) -> tuple[SlotPlan, ...]:
        """Every variable that will live in shards."""
        return tuple(s for v in self.variables for s in (*v.sharded_weights, *v.slots))

    @property
    def buckets(self) -> tuple[tuple[VariablePlan, ...], ...]:
        """The variables of each bucket, in order."""
        grouped: dict[int, list[VariablePlan]] = {}
        for variable in self.variables:
            grouped.setdefault(variable.bucket, []).append(variable)
        return tuple(tuple(grouped[b]) for b in sorted(grouped))

    def to_json(self) -> str:
        """The plan as JSON; `plan_from_json` reads it back."""
        return json.dumps(_data_of(self), indent=1)


def _data_of(value: Any) -> Any:
    """Dataclasses as dictionaries; the layouts of tables and owners have a `kind` besides."""
    if isinstance(value, tuple):
        return [_data_of(element) for element in value]
    if isinstance(value, Refusal):
        return value.to_data()
    if not dataclasses.is_dataclass(value):
        return value
    data = {f.name: _data_of(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, RowLayout):
        data["kind"] = "table"
    if isinstance(value, OwnerLayout):
        data["kind"] = "owner"
    return data


def plan_from_json(text: str) -> ShardingPlan:
    """Reads a plan written by `ShardingPlan.to_json`.

    Raises:
        ValueError: If the text is of another version or is no plan.
    """
    data = json.loads(text)
    if not isinstance(data, dict) or data.get("version") != PLAN_VERSION:
        raise ValueError(f"this is not a sharding plan of version {PLAN_VERSION}")
    return ShardingPlan(
        version=PLAN_VERSION,
        fingerprint=data["fingerprint"],
        num_replicas=data["num_replicas"],
        variables=tuple(_variable(v) for v in data["variables"]),
        summed_whole=tuple(data["summed_whole"]),
        left_alone=tuple(
            LeftAlone(a["variable"], refusal_from(a["refusal"]), tuple(a["reductions"]))
            for a in data["left_alone"]
        ),
        stacks=tuple(
            StackPlan(tuple(s["updates"]), tuple(s["functions"]), s["each"], s["by_turns"])
            for s in data["stacks"]
        ),
    )


def _variable(data: dict[str, Any]) -> VariablePlan:
    return VariablePlan(
        variable=data["variable"],
        weights=tuple(data["weights"]),
        layout=_layout(data["layout"]),
        dtype=data["dtype"],
        slots=tuple(_slot(s) for s in data["slots"]),
        sharded_weights=tuple(_slot(s) for s in data["sharded_weights"]),
        gather_dtype=data["gather_dtype"],
        update=data["update"],
        reductions=tuple(data["reductions"]),
        bucket=data["bucket"],
        whole_because=refusal_from(because) if (because := data["whole_because"]) else None,
        other_layouts=tuple(_layout(side) for side in data["other_layouts"]),
    )


def _slot(data: dict[str, Any]) -> SlotPlan:
    return SlotPlan(data["variable"], _layout(data["layout"]), data["dtype"])


def _layout(data: dict[str, Any]) -> AnyLayout:
    if "order" in data:
        return TileLayout(
            tuple(data["shape"]),
            tuple(data["order"]),
            data["num_shards"],
            data["run_rows"],
            tuple(data["held"]),
            data["tile_shards"],
            data["flattened"],
        )
    if data.get("kind") == "owner":
        return owner_layout(tuple(data["shape"]), data["num_shards"], data["owner"])
    kind = RowLayout if data.get("kind") == "table" else Layout
    return kind(tuple(data["shape"]), data["num_shards"], data["shard_size"])
