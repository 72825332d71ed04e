"""One task of the demo, trained three times: the runs side by side and whether they agree."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tf_wu_shard.demo import agreement
from tf_wu_shard.demo.agreement import Agreement
from tf_wu_shard.demo.processes import Training
from tf_wu_shard.demo.runs import Mode, Run


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What a task's runs showed.

    Attributes:
        task: Its name, as in `runs.TITLES`.
        replicas: Number of replicas, on several workers of these.
        unsharded: The baseline.
        reordered: The baseline in another order of summation.
        sharded: The run with weight-update sharding on.
        agreements: Sharded against unsharded: losses, weights, slots.
    """

    task: str
    replicas: int
    unsharded: Run
    reordered: Run
    sharded: Run
    agreements: tuple[Agreement, ...]

    @property
    def problems(self) -> tuple[str, ...]:
        """What keeps this from being a success, one line each; empty when all is well."""
        found = [
            f"{self.task}: {one.quantity} differ by {one.difference:.1e} in {one.worst},"
            f" and only {one.limit:.1e} is rounding"
            for one in self.agreements
            if not one.holds
        ]
        sharding = self.sharded.sharding
        if sharding is None:
            found.append(f"{self.task}: the flag was on and the pass reported nothing")
        elif not sharding.variables:
            found.append(f"{self.task}: the flag was on and {sharding.verdict}")
        if self.unsharded.sharding is not None:
            found.append(f"{self.task}: the flag was off and the pass reported a function")
        found += [
            f"{self.task}: after the {run.mode.value} run the workers' weights differ"
            for run in (self.unsharded, self.reordered, self.sharded)
            if run.cluster is not None and len(set(run.cluster.digests)) > 1
        ]
        return tuple(found)


def compare(task: str, replicas: int, trained: Mapping[Mode, Training]) -> Comparison:
    """Puts a task's runs side by side.

    Args:
        task: A name in `runs.TITLES`.
        replicas: Number of replicas.
        trained: Its run in each mode.

    Raises:
        DemoError: The runs cannot be compared.
    """
    unsharded, reordered, sharded = (trained[mode] for mode in Mode)
    return Comparison(
        task=task,
        replicas=replicas,
        unsharded=unsharded[0],
        reordered=reordered[0],
        sharded=sharded[0],
        agreements=agreement.compare(unsharded, reordered, sharded),
    )
