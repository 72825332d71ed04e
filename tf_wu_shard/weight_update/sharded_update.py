"""The package's own pass, the last over every step: the weight update in shards."""

from __future__ import annotations

import dataclasses
import weakref
from typing import Any

from tf_wu_shard.config import FLAG, ShardingOptions, parse_flag
from tf_wu_shard.report.published import nothing_sharded
from tf_wu_shard.step.capture import Captured
from tf_wu_shard.step.step import Step
from tf_wu_shard.storage import copies_apart
from tf_wu_shard.tensorflow_private import function_graph
from tf_wu_shard.weight_update import all_workers
from tf_wu_shard.weight_update.hand_over import handed_over
from tf_wu_shard.weight_update.nested_updates import NestedUpdates
from tf_wu_shard.weight_update.stages import Outcome, run_stages


class ShardedUpdate:
    """Shards the weight update of steps; a `passes.Pass` that is there also when its flag is off.

    What lives in shards goes on doing so then, and what a step does to it is redirected to them.
    """

    flag = FLAG
    parse = staticmethod(parse_flag)

    def __init__(self) -> None:
        # Functions already reported; a caller adds no second report.
        self._reported: weakref.WeakKeyDictionary[Any, frozenset[int]] = weakref.WeakKeyDictionary()

    def apply(self, step: Step, options: ShardingOptions | None) -> Step:
        """Shards what it can; see `passes.Pass.apply`.

        Args:
            step: The step.
            options: How; None where the flag is off.

        Raises:
            StorageError: If the step does something to a slot in shards that cannot be expressed
                on its shards.
        """
        outcome = run_stages(step, options, self._reported)
        changed = handed_over(step, outcome, options)
        return dataclasses.replace(
            changed, reports=tuple(outcome.reports), reported=outcome.reported
        )

    def redirected(self, step: Step) -> Step:
        """The step with nothing sharded, what it does to slots in shards redirected to them.

        Raises:
            StorageError: As `apply`.
        """
        return handed_over(step, Outcome(NestedUpdates(step.captured)), None)

    def confirmed(self, before: Step, after: Step) -> Step:
        """A sharded step if all workers have made theirs, too; else one with nothing sharded.

        Args:
            before: What `apply` was given.
            after: What it returned; nothing of it is in use yet.

        Raises:
            StorageError: If slots live in shards already and some workers do not answer.
        """
        refusal = all_workers.confirm(before.captured)
        if refusal is None:
            return after
        names = tuple(v.name for report in after.reports for v in report.variables)
        report = nothing_sharded(function_graph.title(before.graph), refusal, names)
        return dataclasses.replace(self.redirected(before), reports=(report,))

    def abandon(self, captured: Captured | None, error: Exception) -> None:
        """Tells other workers that this one does not get so far; see `all_workers.abandon`."""
        all_workers.abandon(captured, error)

    def remember(self, graph: Any, step: Step) -> None:
        """Notes that a function was reported.

        Args:
            graph: Its FuncGraph, as it was traced or as it is now.
            step: The step with its reports.
        """
        self._reported[graph] = step.reported
        for report in step.reports:
            updated = (step.captured.variables.get(v.name) for v in report.variables)
            copies_apart.note_update(report.function, (v for v in updated if v is not None))
