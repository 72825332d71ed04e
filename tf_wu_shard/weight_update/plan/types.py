"""The plan: what will be sharded, how, and what will not be, and why. Frozen, printable data.

It names updates and reductions by their places in an analysis, so the rewrite takes graph, analysis
and plan; it decides nothing of what the plan says. The report is a summary of analysis and plan. A
plan is pinned to its graph by a fingerprint.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tf_wu_shard.layout import AnyLayout, of_size
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.weight_update.plan.stacks import StackPlan


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
        wire_dtype: The DataType enum's number of what its float32 gradients travel in; another than
            theirs where they are rounded on the way.
        update: Position of the update in the analysis.
        reductions: Keys of the gradient reductions it consumes.
        bucket: The bucket it travels in.
        whole_because: Why its weights stay whole where the dialect would have them in shards, or
            None.
        other_layouts: For each other size that the update's variables have, how what is of that
            size is cut.
        open_because: Why XLA compiles nothing of what it computes on its shards, where it compiles
            what other updates do; None where it may.
    """

    variable: str
    weights: tuple[str, ...]
    layout: AnyLayout
    dtype: int
    slots: tuple[SlotPlan, ...]
    sharded_weights: tuple[SlotPlan, ...]
    gather_dtype: int
    wire_dtype: int
    update: int
    reductions: tuple[int, ...]
    bucket: int
    whole_because: Refusal | None
    other_layouts: tuple[AnyLayout, ...] = ()
    open_because: Refusal | None = None

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
        fingerprint: The graph it was made for; it fits no other.
        num_replicas: Replicas that share each update.
        variables: The sharded updates, in the order of the analysis.
        summed_whole: Keys of the reductions that are not sharded and lose their carrier, as a
            sharded one travelled in it too; an all-reduce of their own takes its place.
        left_alone: What stays as it was.
        stacks: Who computes the matrix functions of sharded updates.
        compile_update: How XLA compiles what updates compute on their shards, "exact" or "fast"; ""
            where it does not.
    """

    fingerprint: str
    num_replicas: int
    variables: tuple[VariablePlan, ...]
    summed_whole: tuple[int, ...]
    left_alone: tuple[LeftAlone, ...]
    stacks: tuple[StackPlan, ...] = ()
    compile_update: str = ""

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
