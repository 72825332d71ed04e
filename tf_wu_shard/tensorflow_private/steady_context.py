"""TensorFlow's eager context stays as it is while a thread of ours uses it.

A program makes a strategy of several workers, or calls `keras.backend.clear_session()`, and
TensorFlow frees devices, functions' runtimes and kernels of the context. It waits for no op that
another thread runs meanwhile, which goes on in freed memory and crashes the process. TensorFlow
itself has no such thread; we have: the watch over other workers, and the answers to them.

Answers: `once_idle` lets such a change wait for `in_use`, and the other way round. It does not
promise anything to threads that the program itself starts.
"""

from __future__ import annotations

import collections
import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tensorflow.python.eager import context

from tf_wu_shard.tensorflow_private.wrapping import wrap_once

# What frees parts of the context that an op may be using.
_CHANGES = ("enable_collective_ops", "clear_kernel_cache")

# Who uses the context, and who changes it, by the thread: both may begin again within themselves,
# as garbage that is collected in the midst of a change may use the context.
_idle = threading.Condition()
_using: collections.Counter[int] = collections.Counter()
_changing: collections.Counter[int] = collections.Counter()


def once_idle() -> None:
    """From now on the context changes only while no thread has it `in_use`; may be called again.

    Call it in the program's own thread, before a thread of ours uses the context.
    """
    for change in _CHANGES:
        wrap_once(context.Context, change, _when_idle)


def _when_idle(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    with _within(_changing, waits_for=(_using, _changing)):
        return original(*args, **kwargs)


@contextlib.contextmanager
def in_use() -> Iterator[None]:
    """The context does not change meanwhile; the program's change waits, other threads do not."""
    with _within(_using, waits_for=(_changing,)):
        yield


@contextlib.contextmanager
def _within(
    mine: collections.Counter[int], waits_for: Sequence[collections.Counter[int]]
) -> Iterator[None]:
    """Counts this thread among some while no other thread is among others."""
    me = threading.get_ident()

    def is_free() -> bool:
        return not any(thread != me for others in waits_for for thread in others)

    with _idle:
        _idle.wait_for(is_free)
        mine[me] += 1
    try:
        yield
    finally:
        with _idle:
            mine[me] -= 1
            if not mine[me]:
                del mine[me]
            _idle.notify_all()
