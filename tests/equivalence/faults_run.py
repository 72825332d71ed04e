"""Trains as one worker of several, to one of which something happens; see `faults_test`.

    TF_CONFIG=... python -m tests.equivalence.faults_run MOMENT HOW VICTIM on|off

To the victim, a worker's number, this happens: `kill`, `stop`, `pause` (a stop that the test ends),
`fail` (an error of its program's own) or `leave` (its program ends early). It prints `struck
SECONDS` before, whoever gets an error `noticed SECONDS NAME`, both in seconds of the machine's
monotonic clock. Who gets to the end prints `trained DIGEST`. Moments:

* `step`: while the gradient of the third step is computed; the others wait for it in a collective.
* `trace`: while the step is traced, before any vote; the others vote, or run the step's collective.
* `vote`: between the two votes; without the flag there is none, and it is as `trace`.
* `save`: in the middle of a save that all workers make.
* `between`: before the third step, outside of anything.
* `asked`: in a step, when another worker that reads all slots alone asks for the first shard.
* `answering`: the same, when the beginning of the first answer is there, and its shard is not.
* `answered`: the same, when the last answer is there.

Without the flag nobody is asked: in the last three the victim is lost in the step itself, while the
other reads what it has itself. Whoever read all slots prints `read DIGEST`.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import keras
import numpy as np
import tensorflow as tf

import tf_wu_shard
from tests.equivalence.in_process import in_shards, turn_on
from tests.equivalence.nested_scenarios import adam
from tests.equivalence.net import INPUTS, TARGETS, Net
from tests.equivalence.scenarios_run import digest
from tf_wu_shard.weight_update import all_workers
from tf_wu_shard.workers import shard_answers

# All is traced and in shards by then. Counted from 0.
_FATAL_STEP = 2
_STEPS = 6


class Fate:
    """What happens to this process at a moment, if it is the victim and the moment has come."""

    def __init__(self, how: str, is_victim: bool) -> None:
        self._how = how
        self.is_victim = is_victim
        self.has_come = False

    def __call__(self) -> None:
        """The moment."""
        if not (self.is_victim and self.has_come):
            return
        self.has_come = False
        print(f"struck {time.monotonic()}", flush=True)
        if self._how == "fail":
            raise RuntimeError("this worker fails on purpose")
        if self._how == "leave":
            sys.exit(0)
        os.kill(os.getpid(), signal.SIGKILL if self._how == "kill" else signal.SIGSTOP)

    def in_the_gradient(self, value: tf.Tensor) -> tf.Tensor:
        """The value itself; the moment is where its gradient is computed."""

        def come(gradient: np.ndarray) -> np.ndarray:
            self()
            return gradient

        @tf.custom_gradient
        def same(inner: tf.Tensor) -> tuple[tf.Tensor, Callable[..., tf.Tensor]]:
            def gradient(upstream: tf.Tensor) -> tf.Tensor:
                passed = tf.numpy_function(come, [upstream], upstream.dtype)
                return tf.ensure_shape(passed, upstream.shape)

            return tf.identity(inner), gradient

        return same(value)

    @contextlib.contextmanager
    def around(self, owner: Any, name: str, after: bool = False) -> Iterator[None]:
        """While it lasts, the moment is before a function is called, or after."""

        def fatal(*given: Any) -> Any:
            if not after:
                self()
            returned = original(*given)
            if after:
                self()
            return returned

        original = getattr(owner, name)
        with mock.patch.object(owner, name, fatal):
            yield


class _FatalState(tf.train.experimental.PythonState):
    """Something that a checkpoint saves, at the moment."""

    def __init__(self, fate: Fate) -> None:
        super().__init__()
        self._fate = fate

    def serialize(self) -> str:
        self._fate()
        return ""

    def deserialize(self, string_value: str) -> None:
        del string_value


class _FatalNet(Net):
    """A net of which each trace and each gradient may be the moment."""

    def __init__(self, strategy: tf.distribute.Strategy, trace: Fate, step: Fate) -> None:
        self._trace, self._step = trace, step
        super().__init__(strategy, adam())

    def forward(self, rows: tf.Tensor) -> tf.Tensor:
        self._trace()
        return self._step.in_the_gradient(super().forward(rows))


class _Countdown(Fate):
    """A moment that comes when it has been called as often as there are slots in shards."""

    def __init__(self, how: str, is_victim: bool) -> None:
        super().__init__(how, is_victim)
        self.left = 0

    def __call__(self) -> None:
        if self.has_come:
            self.left -= 1
        if self.left == 0:
            super().__call__()


def main(moment: str, how: str, victim: str, flag: str) -> None:
    """Trains; whoever outlives a victim ends with an error."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    is_victim = strategy.cluster_resolver.task_id == int(victim)
    reads_alone = moment in ("asked", "answering", "answered") and not is_victim
    if flag == "on":
        turn_on()
    else:
        unsharded = {"vote": "trace", "asked": "step", "answering": "step", "answered": "step"}
        moment = unsharded.get(moment, moment)
    fate = _Countdown(how, is_victim) if moment == "answered" else Fate(how, is_victim)
    nothing = Fate(how, is_victim=False)

    def at(name: str) -> Fate:
        return fate if name == moment else nothing

    keras.utils.set_random_seed(3)
    net = _FatalNet(strategy, at("trace"), at("step"))
    given = net.spread(INPUTS), net.spread(TARGETS)

    @tf.function
    def step(rows: Any, wanted: Any) -> Any:
        return strategy.run(net.train, (rows, wanted))

    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as moments:
        moments.enter_context(at("vote").around(all_workers, "confirm"))
        moments.enter_context(at("asked").around(shard_answers, "claim"))
        moments.enter_context(at("answering").around(shard_answers, "_piece_key"))
        moments.enter_context(at("answered").around(shard_answers, "leave", after=True))
        kept = tf.train.Checkpoint(optimizer=net.optimizer, fatal=_FatalState(at("save")))
        fate.has_come = moment in ("trace", "vote")
        for count in range(_STEPS):
            if count == _FATAL_STEP:
                print([report.verdict for report in tf_wu_shard.reports()], flush=True)
                if isinstance(fate, _Countdown):
                    fate.left = sum(in_shards(slot) for slot in net.optimizer.variables)
                fate.has_come = fate.has_come or moment not in ("trace", "vote")
            if moment == "save":
                kept.save(str(pathlib.Path(folder) / "kept"))
            at("between")()
            if count == _FATAL_STEP and reads_alone:
                read = digest([slot.numpy() for slot in net.optimizer.variables])
                print(f"read {read}", flush=True)
            step(*given)
    print(f"trained {digest([value.numpy() for value in net.state])}", flush=True)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Exception as error:
        print(f"noticed {time.monotonic()} {type(error).__name__}", flush=True)
        raise
