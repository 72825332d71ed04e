"""One parent and a cluster of processes on this machine, all of them at work at a time.

Each process is a worker with a `TF_CONFIG` of its own that answers commands, one by one, as
`conversation` has it. Nothing here knows what the commands mean.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tf_wu_shard import cluster_addresses
from tf_wu_shard.bench.conversation import Worker


class LocalCluster:
    """The parent's end: asks all workers, or one of them."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        """Takes workers that were started.

        Args:
            workers: In their order.
        """
        self._workers = tuple(workers)

    def ask(self, command: str, **arguments: Any) -> list[Any]:
        """Asks all workers at once, as each waits for the others, and blocks until all answered.

        Args:
            command: The command's name.
            **arguments: What it needs, as JSON knows it; the same for all.

        Returns:
            The answers in the order of the workers.

        Raises:
            WorkerError: A worker failed; all of them are ended then. It has the words of the first
                that did, as the others may only say that they miss it.
            OptionError: As `Worker.ask`.
        """
        with concurrent.futures.ThreadPoolExecutor(len(self._workers)) as pool:
            asked = [pool.submit(worker.ask, command, **arguments) for worker in self._workers]
            try:
                for answer in concurrent.futures.as_completed(asked):
                    answer.result()
            except BaseException:
                # Those that wait for a worker that failed get no answer, and their threads an end.
                self.kill()
                raise
        return [answer.result() for answer in asked]

    def ask_one(self, index: int, command: str, **arguments: Any) -> Any:
        """Asks one worker alone; see `Worker.ask`."""
        return self._workers[index].ask(command, **arguments)

    def kill(self) -> None:
        """Ends all processes; who waits for an answer of theirs, in any thread, gets an error."""
        for worker in self._workers:
            worker.kill()


@contextlib.contextmanager
def running(
    count: int, module: str, environment: Mapping[str, str] | None = None
) -> Iterator[LocalCluster]:
    """Starts the workers of a cluster, on ports that are held for them, and ends them.

    Args:
        count: How many.
        module: What each of them runs; it does nothing until it is asked.
        environment: Variables to set besides this process's own.

    Yields:
        The cluster; its processes may be at work when they are ended.
    """
    with contextlib.ExitStack() as held:
        ports = held.enter_context(cluster_addresses.held_ports(count))
        given = os.environ | dict(environment or {})
        yield LocalCluster(
            [
                held.enter_context(
                    Worker(
                        f"worker {index}",
                        [sys.executable, "-m", module],
                        environment=given
                        | {"TF_CONFIG": cluster_addresses.task_config(ports, index)},
                    )
                )
                for index in range(count)
            ]
        )
