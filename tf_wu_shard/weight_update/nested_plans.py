"""What is found in the branches and loops of a program, and plans for them that agree.

Each is a graph of its own, analysed and planned alone. But a variable may be used in several of
them, and around them: no plan takes what another graph needs whole.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container

from tf_wu_shard import refusals
from tf_wu_shard.grounds.dialect import Dialect
from tf_wu_shard.program.nesting import Nested, everything, uses
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.step.capture import Captured
from tf_wu_shard.weight_update.analysis.analyze import analyze
from tf_wu_shard.weight_update.analysis.types import Analysis
from tf_wu_shard.weight_update.plan.constraints import StorageConstraints
from tf_wu_shard.weight_update.sharding import Sharding

# Plans for what was found in a graph, of which some must stay whole.
PlanSharding = Callable[[Analysis, StorageConstraints], Sharding]


class NestedPlans:
    """The branches and bodies of one program, and the stages' findings on each, by number.

    Attributes:
        programs: The branches and bodies, inner ones first.
        analyses: What was found in each.
        constraints: What the storage of each one's variables asks.
        shardings: What is planned for each.
    """

    def __init__(self, captured: Captured, nested: tuple[Nested, ...], dialect: Dialect) -> None:
        """Analyses each.

        Args:
            captured: The enclosing graph.
            nested: The branches and bodies in it.
            dialect: How the replicas talk in them.
        """
        both = [*everything(nested)]
        self.programs = [one for one, _ in both]
        self._numbers = {id(one): number for number, one in enumerate(self.programs)}
        # What lies around each; -1 stands for the enclosing graph.
        self._around = [{-1, *map(self.number, around)} for _, around in both]
        # What each graph does to a variable.
        self._uses = {-1: uses(captured, nested)}
        self._uses |= {n: uses(o.captured, o.inner) for n, o in enumerate(self.programs)}
        self.analyses: list[Analysis] = []
        for one in self.programs:
            found = analyze(one.captured.view, dialect).with_reasons(one.captured.kept_branches)
            self.analyses.append(self.without_inner(found, one.inner))
        self.constraints: list[StorageConstraints] = []
        self.shardings: dict[int, Sharding] = {}

    def number(self, one: Nested) -> int:
        """The number of a branch or body."""
        return self._numbers[id(one)]

    def without_inner(self, found: Analysis, nested: tuple[Nested, ...]) -> Analysis:
        """Leaves out updates that stand further inside; what is found there reports them.

        Args:
            found: What was found in a graph.
            nested: The branches and bodies in it.
        """
        hosts = {inner.op for inner in nested}
        inner = [self.analyses[self.number(one)] for one, _ in everything(nested)]
        reported = {r.variable for analysis in inner for r in analysis.refused}
        reported |= {v.key for a in inner for update in a.updates for v in update.variables}
        kept = [
            r for r in found.refused if r.refusal.where not in hosts or r.variable not in reported
        ]
        return dataclasses.replace(found, refused=tuple(kept))

    def plan(
        self,
        plan_one: PlanSharding,
        constraints_of: Callable[[Analysis, Captured], StorageConstraints],
        in_shards: Container[str] = (),
    ) -> None:
        """Plans each, until no plan takes what another graph uses whole.

        Args:
            plan_one: Plans one.
            constraints_of: What the storage of a graph's variables asks in any case.
            in_shards: Keys of the variables that live in shards already.
        """
        both = zip(self.analyses, self.programs, strict=True)
        self.constraints = [constraints_of(analysis, one.captured) for analysis, one in both]
        again = True
        while again:
            self.shardings = {
                number: plan_one(self.analyses[number], constraints)
                for number, constraints in enumerate(self.constraints)
            }
            again = any([self._withdraw(number, in_shards) for number in self.shardings])

    def _withdraw(self, number: int, in_shards: Container[str]) -> bool:
        """Notes what a plan must not take; whether there is any."""
        found = False
        for variable in self.shardings[number].plan.variables:
            for slot in variable.in_shards:
                is_weight = slot in variable.sharded_weights
                refusal = self._used_elsewhere(number, slot.variable, is_weight)
                if refusal is None:
                    continue
                found = True
                may_be_whole = is_weight and slot.variable not in in_shards
                self.constraints[number] = self.constraints[number].keeping(
                    slot.variable, refusal, update=not may_be_whole
                )
        return found

    def _used_elsewhere(self, number: int, key: str, is_weight: bool) -> Refusal | None:
        """Which other graph needs a variable whole that one graph's plan takes, if any."""
        for other, used in self._uses.items():
            if other == number or key not in used:
                continue
            there = self.shardings.get(other)
            if there is not None and any(slot.variable == key for slot in there.plan.in_shards):
                continue
            if is_weight and used[key]:
                continue  # its reads are redirected to the shards
            op = self.programs[number].op
            if other in self._around[number]:
                return refusals.Storage.UPDATED_INSIDE_USED_OUTSIDE.at(op=op)
            return refusals.Storage.UPDATED_INSIDE_USED_ELSEWHERE.at(op=op)
        return None
