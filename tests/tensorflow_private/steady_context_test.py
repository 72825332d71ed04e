"""A change of TensorFlow's context waits for threads that use it, and they for the change."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
import tensorflow as tf
from tensorflow.python.eager import context

from tf_wu_shard.tensorflow_private import steady_context, wrapping

_SECONDS = 30.0


@pytest.fixture(params=["enable_collective_ops", "clear_kernel_cache"])
def change(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Callable[[], None], threading.Event, threading.Event]]:
    """A change, what is set once it has begun, and what it waits for to end."""
    begun, may_end = threading.Event(), threading.Event()

    def changing(self: context.Context) -> None:
        begun.set()
        assert may_end.wait(_SECONDS)

    for name in ("enable_collective_ops", "clear_kernel_cache"):
        wrapping.unwrap(context.Context, name)
        monkeypatch.setattr(context.Context, name, changing)
    steady_context.once_idle()
    steady_context.once_idle()
    yield lambda: getattr(context.context(), request.param)(), begun, may_end
    may_end.set()


def test_a_change_waits_until_no_thread_uses_the_context(
    change: tuple[Callable[[], None], threading.Event, threading.Event],
) -> None:
    makes, begun, may_end = change
    thread = threading.Thread(target=makes)
    with steady_context.in_use():
        thread.start()
        assert not begun.wait(0.2)
    assert begun.wait(_SECONDS)
    may_end.set()
    thread.join(_SECONDS)
    assert not thread.is_alive()


def test_a_thread_uses_the_context_once_the_change_has_ended(
    change: tuple[Callable[[], None], threading.Event, threading.Event],
) -> None:
    makes, begun, may_end = change
    used: list[float] = []

    def use() -> None:
        with steady_context.in_use():
            used.append(float(tf.constant(1.0)))

    changing, using = threading.Thread(target=makes), threading.Thread(target=use)
    changing.start()
    assert begun.wait(_SECONDS)
    using.start()
    using.join(0.2)
    assert not used
    may_end.set()
    for thread in (changing, using):
        thread.join(_SECONDS)
    assert used == [1.0]


def test_threads_use_the_context_at_the_same_time() -> None:
    # One may wait long for another worker, and the watch over workers must go on.
    met = threading.Barrier(2, timeout=_SECONDS)

    def use() -> None:
        with steady_context.in_use():
            met.wait()

    other = threading.Thread(target=use)
    other.start()
    with steady_context.in_use():
        met.wait()
    other.join(_SECONDS)
    assert not other.is_alive()
