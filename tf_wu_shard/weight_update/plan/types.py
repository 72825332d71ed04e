"""The plan: what will be sharded, how, and what will not be, and why. Frozen data.

It embeds the updates that it is about and their gradients, so whatever comes after it takes the
graph and the plan, and decides nothing of what the plan says. The report is a summary of it. A plan
is pinned to its graph by a fingerprint.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tf_wu_shard.grounds.dialect import Gathered
from tf_wu_shard.layout import AnyLayout, of_size
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.step.reductions import GradientReduction
from tf_wu_shard.weight_update.analysis.types import RefusedUpdate, WeightUpdate
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
        update: The update.
        reductions: The gradient reductions it consumes.
        layouts: For each size that its variables have, how what is of that size is cut; first that
            of the weight, and with it of its gradient. Of an update that one replica does, who
            that is.
        slots: The slots that will live in shards.
        sharded_weights: All its weights, where they will live in shards and are put together when
            the step reads them, not after the update; else ().
        gather_dtype: The DataType enum's number of what the weight travels in from its shards; the
            other sharded weights travel in their own types.
        wire_dtype: The DataType enum's number of what its float32 gradients travel in; another than
            theirs where they are rounded on the way.
        bucket: The bucket it travels in.
        whole_because: Why its weights stay whole where the dialect would have them in shards, or
            None.
        compiled: How XLA compiles what it computes on its shards: "exact" or "fast", "as asked for"
            where the step has it compiled anyway, or "" where it does not.
        open_because: Why it compiles nothing of it, where it compiles what other updates do.
    """

    update: WeightUpdate
    reductions: tuple[GradientReduction, ...]
    layouts: tuple[AnyLayout, ...]
    slots: tuple[SlotPlan, ...]
    sharded_weights: tuple[SlotPlan, ...]
    gather_dtype: int
    wire_dtype: int
    bucket: int
    whole_because: Refusal | None
    compiled: str = ""
    open_because: Refusal | None = None

    @property
    def variable(self) -> str:
        """Key of the (first) weight."""
        return self.update.name

    @property
    def weights(self) -> tuple[str, ...]:
        """Keys of the variables that every replica has whole after the update.

        Slots that the step also reads elsewhere are among them.
        """
        return () if self.sharded_weights else tuple(v.key for v in self.update.weights)

    @property
    def in_shards(self) -> tuple[SlotPlan, ...]:
        """Every variable of it that will live in shards."""
        return (*self.sharded_weights, *self.slots)

    @property
    def layout(self) -> AnyLayout:
        """How the weight is cut."""
        return self.layouts[0]

    @property
    def dtype(self) -> int:
        """The DataType enum's number of the first gradient; of a sparse one, of its values."""
        return main_gradient(self.reductions).dtype

    def layout_of(self, size: int) -> AnyLayout:
        """How whatever has so many elements is cut."""
        return of_size(self.layouts, size)


def main_gradient(reductions: Sequence[GradientReduction]) -> GradientReduction:
    """The first of an update's gradients; of a sparse one, its values."""
    return next(r for r in reductions if r.gathered in (None, Gathered.VALUES))


def bucket_name(bucket: Sequence[VariablePlan]) -> str:
    """What to call variables that travel together."""
    names = list(dict.fromkeys(v.variable for v in bucket))
    return names[0] if len(names) == 1 else f"bucket_{bucket[0].bucket}"


@dataclasses.dataclass(frozen=True)
class LeftAlone:
    """An update that stays as it was.

    Attributes:
        update: The update; one that does not pay, or that could not be found as a whole.
        refusal: Why.
    """

    update: WeightUpdate | RefusedUpdate
    refusal: Refusal

    @property
    def variable(self) -> str:
        """The key of its (first) weight, or the gradient's op where no variable was found."""
        return self.update.name


@dataclasses.dataclass(frozen=True)
class ShardingPlan:
    """What to do with one graph.

    Attributes:
        fingerprint: The graph it was made for; it fits no other.
        num_replicas: Replicas that share each update; 0 where the graph reduces no gradient.
        reductions: The gradient reductions of the graph, by key.
        variables: The sharded updates, in the order of the analysis.
        summed_whole: The reductions that are not sharded and lose their carrier, as a sharded one
            travelled in it too; an all-reduce of their own takes its place.
        left_alone: What stays as it was, updates that were found first.
        refusals: What was refused without a variable to name.
        stacks: Who computes the matrix functions of sharded updates.
        compile_update: How XLA compiles what updates compute on their shards, "exact" or "fast"; ""
            where it does not.
        at_a_time: How many replicas compute their gradients at a time; 0 where none is held back.
    """

    fingerprint: str
    num_replicas: int
    reductions: tuple[GradientReduction, ...]
    variables: tuple[VariablePlan, ...]
    summed_whole: tuple[GradientReduction, ...]
    left_alone: tuple[LeftAlone, ...]
    refusals: tuple[Refusal, ...]
    stacks: tuple[StackPlan, ...] = ()
    compile_update: str = ""
    at_a_time: int = 0

    @property
    def all_updates(self) -> tuple[WeightUpdate | RefusedUpdate, ...]:
        """All updates that it is about, shared or left alone."""
        return (*(v.update for v in self.variables), *(left.update for left in self.left_alone))

    @property
    def updates(self) -> tuple[WeightUpdate, ...]:
        """Those of them that were found as a whole."""
        return tuple(update for update in self.all_updates if isinstance(update, WeightUpdate))

    @property
    def in_shards(self) -> tuple[SlotPlan, ...]:
        """Every variable that will live in shards."""
        return tuple(s for v in self.variables for s in v.in_shards)

    @property
    def buckets(self) -> tuple[tuple[VariablePlan, ...], ...]:
        """The variables of each bucket, in order."""
        grouped: dict[int, list[VariablePlan]] = {}
        for variable in self.variables:
            grouped.setdefault(variable.bucket, []).append(variable)
        return tuple(tuple(grouped[b]) for b in sorted(grouped))
