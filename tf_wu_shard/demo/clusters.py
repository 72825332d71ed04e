"""A run on several workers: real processes under MultiWorkerMirroredStrategy on this machine.

They talk gRPC over the loopback interface. Every step is asked of all workers at once, and the
figures of a run are those of all workers together; its final tensors are those of worker 0, which
reads whole slots while the others keep their parts.
"""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Callable, Mapping

from tf_wu_shard.bench import local_cluster, loopback
from tf_wu_shard.bench.agreement_time import seconds_of_agreements
from tf_wu_shard.demo import runs, under_way
from tf_wu_shard.demo.runs import ClusterFigures, Mode, Run, Tensors


def train(
    task: str,
    mode: Mode,
    *,
    workers: int,
    quick: bool,
    folder: pathlib.Path,
    environment: Mapping[str, str],
    progress: Callable[[dict[str, float]], None],
) -> tuple[Run, Tensors]:
    """Trains a task in one mode.

    Args:
        task: A name in `runs.TITLES`.
        mode: How the run updates its weights.
        workers: How many processes.
        quick: Whether to take the small version of the task.
        folder: Where the run and its tensors go; it exists.
        environment: Variables for all workers, besides this process's own.
        progress: Called with what the run says (see `processes.Progress`).

    Raises:
        WorkerError: A worker failed.
        DemoError: It left no whole run.
    """
    with (
        local_cluster.running(workers, "tf_wu_shard.demo.cluster_worker", environment) as cluster,
        under_way.ended_by(cluster.kill),
    ):
        built = cluster.ask("build", task=task, mode=mode.value, quick=quick)
        progress(built[0])
        losses: list[float] = []
        seconds: list[float] = []
        before: int | None = None
        for step in range(1, int(built[0]["steps"]) + 1):
            taken = cluster.ask("step")
            # An exact sum, as workers that change places do not change the order of this one.
            losses.append(math.fsum(one["loss"] for one in taken))
            seconds.append(max(one["seconds"] for one in taken))
            progress({"step": step, "loss": losses[-1], "seconds": seconds[-1]})
            if step == 1:
                before = loopback.received_bytes()
        moved = loopback.bytes_between(before, loopback.received_bytes())
        votes = seconds_of_agreements(cluster.ask("votes"))
        figures = cluster.ask("figures")
        own = ClusterFigures(
            digests=tuple(one["digest"] for one in figures),
            loopback_bytes=None if moved is None else moved / len(losses[1:]),
            votes_s=votes[0] if votes else None,
        )
        measured = {
            "losses": losses,
            "step_s": seconds[1:],
            "first_step_s": seconds[0],
            "peak_bytes": max(one["peak_bytes"] for one in figures),
            "cluster": dataclasses.asdict(own),
        }
        cluster.ask_one(0, "save", folder=str(folder), measured=measured)
        return runs.load(folder)
