"""A dataset that waits for its batches only so long: then stand-ins take their place."""

from __future__ import annotations

import dataclasses
import math
import queue
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from tf_wu_shard.errors import WuShardError
from tf_wu_shard.partial_sums.lateness import FRESH, HELD, STAND_IN, with_lateness
from tf_wu_shard.partial_sums.options import FLAG, current_options


def deadline_dataset(
    dataset: tf.data.Dataset | Sequence[tf.data.Dataset], milliseconds: float
) -> tf.data.Dataset:
    """A dataset of batches that steps need not wait for, for the flag `partial_gradient_sums`.

    Where a batch is not ready in time, a replica gets the one before it once more, as a stand-in:
    the step hands in no gradient for it, and nothing of it is seen in weights, metrics or
    statistics. The batch itself comes in a later step: none is lost, and steps are as many more as
    there were stand-ins. The first batch is always waited for, and so is the one that follows
    `PartialSums.max_staleness` stand-ins in a row.

    Put it last: the first tensor of its batches holds two, which `Strategy.run` takes apart. Where
    `model.fit` is to take several epochs, give it `deadline_dataset(data.repeat(), ...)` and
    `steps_per_epoch`: of a dataset that ends, Keras takes as many steps in every epoch as in the
    first, and what is late in a later one would not come at all. A warning tells of that.

    Args:
        dataset: Its elements are batches: every tensor has examples along its first axis. A
            strategy cuts each into its replicas' parts, which are late together. Or several
            datasets of equal elements, each read by a thread of its own: their batches come in
            turn, of each one a round, so that replicas which get one batch each are late
            independently. Where one has ended before the others, stand-ins take its turns.
        milliseconds: How long a batch, or a round, may take from when it is asked for, which is as
            soon as there is room for it before a step.

    Returns:
        A dataset of batches `with_lateness`, of unknown cardinality; pass it to `model.fit`, to
        `Strategy.experimental_distribute_dataset`, or return it from the function that is given to
        `Strategy.distribute_datasets_from_function`.

    Raises:
        WuShardError: An argument is none of these, or an element has no examples to count.
    """
    sources = [dataset] if isinstance(dataset, tf.data.Dataset) else list(dataset)
    if not sources or not all(isinstance(one, tf.data.Dataset) for one in sources):
        raise WuShardError(
            f"deadline_dataset takes a tf.data.Dataset or several, not {dataset!r}"
            f" ({type(dataset).__name__})"
        )
    number = isinstance(milliseconds, int | float | np.number) and not isinstance(
        milliseconds, bool
    )
    if not (number and 0 < milliseconds < math.inf):
        raise WuShardError(
            "deadline_dataset takes a number of milliseconds above 0, such as 50, not"
            f" {milliseconds!r} ({type(milliseconds).__name__})"
        )
    spec = sources[0].element_spec
    for other in sources[1:]:
        if other.element_spec != spec:
            raise WuShardError(
                "deadline_dataset takes datasets of equal elements, not one of"
                f" {spec} and one of {other.element_spec}"
            )
    examples = _counted(tf.nest.flatten(spec))
    parts = tf.nest.flatten(spec, expand_composites=True)
    signature = (*parts, tf.TensorSpec([examples], tf.int32))
    batches = BatchesInTime(sources, float(milliseconds) / 1e3)
    made = tf.data.Dataset.from_generator(batches, output_signature=tuple(signature))

    def packed(*tensors: tf.Tensor) -> Any:
        element = tf.nest.pack_sequence_as(spec, tensors[:-1], expand_composites=True)
        return with_lateness(element, tensors[-1])

    return made.map(packed)


def _counted(specs: Sequence[Any]) -> int | None:
    """How many examples an element has; None where that differs from one to the next."""
    # Of labels that are None there is a spec, of nothing.
    given = (one for one in specs if tf.nest.flatten(one, expand_composites=True))
    shapes = [getattr(one, "shape", None) for one in given]
    sizes = {shape[0] for shape in shapes if shape is not None and shape.rank}
    uneven = len(sizes - {None}) > 1
    if not shapes or uneven or any(shape is None or shape.rank == 0 for shape in shapes):
        raise WuShardError(
            "deadline_dataset takes batches, of which every tensor has examples along its first"
            f" axis; apply it after batch(), not to elements of {specs}"
        )
    return sizes.pop() if len(sizes) == 1 else None


class _Batch(NamedTuple):
    """The tensors of a batch, and for each of its examples a zero."""

    tensors: tuple[tf.Tensor, ...]
    in_time: tf.Tensor


@dataclasses.dataclass
class _Source:
    """One dataset while it is read, and what came of it last."""

    batches: queue.Queue[Any]
    taken: int = 0
    last: _Batch | None = None
    stand_ins: int = 0
    has_ended: bool = False


class BatchesInTime:
    """Called, it reads the datasets from their beginnings; batches of one step at a time."""

    def __init__(self, datasets: Sequence[tf.data.Dataset], seconds: float) -> None:
        """Reads nothing yet.

        Args:
            datasets: Their elements are batches.
            seconds: How long the batches of a step may take.
        """
        self._datasets = datasets
        self._seconds = seconds
        # How many batches there were when they were read to their ends.
        self._length: int | None = None

    def __call__(self) -> Generator[tuple[Any, ...], None, None]:
        """Yields the tensors of a batch, and for each of its examples how late it is."""
        stopped = threading.Event()
        sources = [_Source(queue.Queue(1)) for _ in self._datasets]
        for dataset, source in zip(self._datasets, sources, strict=True):
            work = (dataset, source.batches, stopped)
            threading.Thread(target=_read, args=work, name="deadline_dataset", daemon=True).start()
        handed_out = 0
        try:
            for batch in self._steps(sources):
                handed_out += 1
                yield batch
            self._length = sum(source.taken for source in sources)
        finally:
            # Whoever dropped the iterator wants no more of it.
            stopped.set()
            self._warn_of_loss(handed_out, sum(source.taken for source in sources))

    def _warn_of_loss(self, handed_out: int, taken: int) -> None:
        """Warns where as many steps as there are batches were too few, and no more are taken."""
        if self._length is not None and taken < self._length <= handed_out:
            logging.warning(
                "%d of the %d batches of a deadline_dataset did not come, as its reader stopped"
                " after %d steps; in Keras, give fit steps_per_epoch and a dataset that repeats",
                *(self._length - taken, self._length, handed_out),
            )

    def _steps(self, sources: Sequence[_Source]) -> Iterator[tuple[Any, ...]]:
        while True:
            until = time.monotonic() + self._seconds
            found = [self._next(source, until) for source in sources]
            if all(source.has_ended for source in sources):
                return
            for source, late in zip(sources, found, strict=True):
                # One that is empty has no batch to stand in, and another's is as good.
                last = source.last or next(one.last for one in sources if one.last is not None)
                yield (*last.tensors, last.in_time + late)

    def _next(self, source: _Source, until: float) -> int:
        """Takes a source's next batch, if it comes in time; says how late it is."""
        if source.has_ended:
            return HELD | STAND_IN
        waits = source.last is None or source.stand_ins >= _max_staleness()
        try:
            # A deadline that has passed still takes what is there.
            left = None if waits else max(0.0, until - time.monotonic())
            batch = source.batches.get(timeout=left)
        except queue.Empty:
            source.stand_ins += 1
            return HELD | STAND_IN
        if isinstance(batch, BaseException):
            raise batch
        source.has_ended = batch is None
        if batch is None:
            return HELD | STAND_IN
        source.last, source.stand_ins = batch, 0
        source.taken += 1
        return FRESH


def _max_staleness() -> int:
    options = current_options()
    if options is None:
        raise WuShardError(
            "a deadline_dataset hands out stand-ins, on which a step trains as on any other batch"
            f" unless the flag {FLAG!r} is on; set it with"
            " tf.config.optimizer.set_experimental_options"
        )
    return options.max_staleness


def _read(dataset: tf.data.Dataset, batches: queue.Queue[Any], stopped: threading.Event) -> None:
    """Reads a dataset into a queue: its batches, then None, or what it raised."""
    try:
        for element in dataset:
            parts = [one for one in tf.nest.flatten(element) if one is not None]
            tensors = tf.nest.flatten(parts, expand_composites=True)
            batch = _Batch(tuple(tensors), tf.zeros([_num_examples(parts)], tf.int32))
            if not _put(batches, batch, stopped):
                return
        _put(batches, None, stopped)
    except BaseException as error:
        _put(batches, error, stopped)


def _num_examples(values: Sequence[Any]) -> int:
    counted = next((one for one in values if isinstance(one, tf.RaggedTensor)), values[0])
    if isinstance(counted, tf.RaggedTensor):
        return int(counted.nrows())
    return int(counted.dense_shape[0] if isinstance(counted, tf.SparseTensor) else len(counted))


def _put(batches: queue.Queue[Any], batch: Any, stopped: threading.Event) -> bool:
    """Waits for room; whether there was any before it was stopped."""
    while not stopped.is_set():
        try:
            batches.put(batch, timeout=0.1)
        except queue.Full:
            continue
        return True
    return False
