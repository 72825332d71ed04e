"""What runs when: what is timed runs alone, all else two at a time."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from tf_wu_shard.demo import under_way
from tf_wu_shard.demo.comparison import Comparison, compare
from tf_wu_shard.demo.processes import Progress, Trainer
from tf_wu_shard.demo.runs import Mode

T = TypeVar("T")

# The steps of these are compared with a clock.
_TIMED = (Mode.UNSHARDED, Mode.SHARDED)

# Most of an untimed run is the tracing and the making of kernels, which fill one core.
_AT_ONCE = 2


def train_all(
    tasks: Iterable[str],
    trainer: Trainer,
    *,
    progress: Progress,
    quiet_progress: Progress,
    beside: Callable[[], T],
) -> tuple[list[Comparison], T]:
    """Trains every task in every mode, each in processes of its own.

    Args:
        tasks: Names in `runs.TITLES`.
        trainer: What trains them.
        progress: Called with the messages of a run that is alone.
        quiet_progress: With those of runs beside others, from threads of their own.
        beside: What else is to be done that is not timed.

    Returns:
        The comparison of each task's runs, and what `beside` returned.

    Raises:
        DemoError: A run failed, or runs cannot be compared.
        Exception: What `beside` raises.
    """
    tasks = list(tasks)
    timed = {task: {mode: trainer.train(task, mode, progress) for mode in _TIMED} for task in tasks}
    pool = concurrent.futures.ThreadPoolExecutor(_AT_ONCE)
    try:
        aside = pool.submit(beside)
        untimed = {
            task: {
                mode: pool.submit(trainer.train, task, mode, quiet_progress)
                for mode in Mode
                if mode not in _TIMED
            }
            for task in tasks
        }
        begun: list[concurrent.futures.Future[Any]] = [
            aside,
            *(f for own in untimed.values() for f in own.values()),
        ]
        ended, _ = concurrent.futures.wait(begun, return_when=concurrent.futures.FIRST_EXCEPTION)
        for future in ended:
            future.result()
        compared = [
            compare(
                task,
                trainer.replicas_of(task),
                timed[task] | {m: f.result() for m, f in own.items()},
            )
            for task, own in untimed.items()
        ]
        return compared, aside.result()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        under_way.end_all()
        raise
    finally:
        pool.shutdown()
