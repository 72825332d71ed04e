"""What of a weight's gradients is late, as checkpoints hold it: beside the weight, summed up.

What waits on all replicas is added up when a checkpoint is written, and given to one of them when
it is restored, so that the number of replicas may be another then. Where nothing waits a checkpoint
is the one that it always was.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import tensorflow as tf
from absl import logging

from tf_wu_shard.errors import WuShardError
from tf_wu_shard.storage.own_variables import OwnVariables
from tf_wu_shard.tensorflow_private import checkpoint_companions

# Where a distributed variable keeps it: it is to own it, and cannot be a key.
_ATTRIBUTE = "_wu_shard_late_gradients"

# What a checkpoint calls it, below a weight.
_NAME = "late_gradients"

# By name: a gradient, or the rows of a sparse one and their numbers.
Parts: TypeAlias = Mapping[str, np.ndarray]

_TAKEN_BY_NONE = (
    "tf_wu_shard: a checkpoint held gradients of %s that are late, and no step of this program"
    " takes them: set the flag partial_gradient_sums and restore before a step is traced, train on"
    " several replicas, or write the checkpoint after flush_partial_sums. They stay in checkpoints"
)

# Parts of this kind stand one after the other; all others are added up.
_LIST = "entries"

# The rows of a sparse gradient, and their numbers.
LISTS = f"{_LIST}/values", f"{_LIST}/rows"

# Those of a sparse gradient that has the same rows in every step.
FIXED_ROWS = "rows"


def dense(number: int) -> str:
    """The name of one of a weight's dense gradients."""
    return f"gradient/{number}"


class Source(Protocol):
    """Where gradients of one weight wait.

    Attributes:
        names: Of the parts that may wait there.
    """

    names: Sequence[str]

    def settle(self) -> None:
        """Ends what is on its way, so that all that is late waits here."""

    def waiting(self) -> Parts:
        """What waits, of all replicas; without what is nothing but zeros."""

    def replace(self, parts: Parts) -> None:
        """Lets that wait from now on, and nothing else.

        Raises:
            ValueError: A part has another shape.
        """


class LateGradients(tf.train.experimental.PythonState):
    """All that is late of one weight's gradients."""

    def __init__(self, weight: str, shape: Sequence[int], replicas: int = 0) -> None:
        """Of a weight of which nothing is late.

        Args:
            weight: What users call it.
            shape: The weight's shape.
            replicas: How many train it; 0 where that is not known.
        """
        # A step of one replica sums nothing.
        self._is_passed_by = replicas == 1
        self._weight = weight
        self._shape = tuple(shape)
        self._sources: dict[str, Source] = {}
        # What no function has asked for since it was restored.
        self._restored: dict[str, np.ndarray] = {}

    def attach(self, name: str, source: Source) -> None:
        """Adds a place where gradients wait; what was restored, waits there from then on.

        Args:
            name: The same for the same place, as each trace attaches it.
            source: The place.

        Raises:
            WuShardError: What was restored is of another kind.
        """
        if name in self._sources:
            return
        self._sources[name] = source
        if self._restored:
            restored, self._restored = self._restored, {}
            self._give(restored, [source])

    def pass_by(self) -> None:
        """Notes that a step trains the weight, and takes nothing that may be restored later."""
        self._is_passed_by = True

    def settle(self) -> None:
        """Ends what is on its way."""
        for source in self._sources.values():
            source.settle()

    def clear(self) -> None:
        """Forgets all that waits."""
        self._restored = {}
        for source in self._sources.values():
            source.replace({})

    @property
    def waiting(self) -> dict[str, np.ndarray]:
        """What waits, by the name of the part."""
        found: dict[str, np.ndarray] = dict(self._restored)
        for source in self._sources.values():
            for name, part in source.waiting().items():
                found[name] = _together(name, [found[name], part]) if name in found else part
        return found

    def serialize(self) -> bytes:
        """What waits, as a file of NumPy's (`numpy.savez`)."""
        file = io.BytesIO()
        parts: dict[str, Any] = {name: _plain(part) for name, part in self.waiting.items()}
        np.savez(file, **parts)
        return file.getvalue()

    def deserialize(self, string_value: bytes) -> None:
        """Lets what a file of NumPy's holds wait, and nothing else.

        Raises:
            WuShardError: It cannot be read, or no step of this program can take it.
        """
        try:
            with np.load(io.BytesIO(string_value), allow_pickle=False) as file:
                restored = {name: file[name] for name in file.files}
        except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
            raise WuShardError(
                f"what a checkpoint holds of {self._weight} as {_NAME} is damaged: {error}"
            ) from error
        self.clear()
        if self._sources:
            self._give(restored, [*self._sources.values()])
        else:
            self._restored = restored
            if self._is_passed_by:
                logging.warning(_TAKEN_BY_NONE, self._weight)

    def warn_of_rest(self) -> None:
        """Says so where no step has taken what was restored."""
        if self._restored:
            logging.warning(_TAKEN_BY_NONE, self._weight)

    def _give(self, restored: Parts, sources: Sequence[Source]) -> None:
        for source in sources:
            parts = self._as(restored, source.names)
            if parts is not None:
                try:
                    source.replace(parts)
                except ValueError as error:
                    raise WuShardError(
                        f"a checkpoint holds gradients of {self._weight} that are late, of another"
                        f" shape than the step has that trains it now: {error}"
                    ) from error
                return
        own = _in_words(sources[0].names)
        raise WuShardError(
            f"a checkpoint holds gradients of {self._weight} that are late, as"
            f" {_in_words(restored)}; the step that trains it now has {own}:"
            " write the checkpoint after a flush, or train on by the step that it was written of"
        )

    def _as(self, parts: Parts, names: Sequence[str]) -> Parts | None:
        """Parts as a place has them; None where they cannot be put so.

        One ground sums the gradient of a table as a whole, another one as a list of rows.
        """
        if {*parts} <= {*names}:
            return parts
        values, numbers = LISTS
        whole = dense(0)
        if [*parts] == [whole] and {*LISTS} <= {*names}:
            (rows,) = np.nonzero(parts[whole].any(axis=tuple(range(1, parts[whole].ndim))))
            return {values: parts[whole][rows], numbers: rows}
        if {*parts} == {*LISTS} and whole in names:
            table = np.zeros(self._shape, parts[values].dtype)
            np.add.at(table, parts[numbers], parts[values])
            return {whole: table}
        return None

    def _copy_trackable_to_cpu(self, object_map: Any) -> None:
        # A checkpoint that another thread writes has none, see `_Companions.before_save_aside`.
        object_map[self] = LateGradients(self._weight, self._shape)


class ReplicasOwn:
    """Gradients that wait in variables of the replicas' own."""

    def __init__(self, parts: Mapping[str, OwnVariables], worker: int | None) -> None:
        """Of one weight.

        Args:
            parts: The variables, by the name of the part.
            worker: The number of this process among those that train; None where it is alone.
        """
        self.names: Sequence[str] = [*parts]
        self._parts = parts
        self._worker = worker

    def settle(self) -> None:
        """Nothing is on its way."""

    def waiting(self) -> Parts:
        """What waits.

        Raises:
            WuShardError: Other processes have some of it.
        """
        own = {name: [one.numpy() for one in part.values()] for name, part in self._parts.items()}
        found = {name: _together(name, parts) for name, parts in own.items()}
        if not is_late(found):
            return {}
        if self._worker is not None:
            raise WuShardError(
                "gradients wait that came too late by with_lateness, and other workers have others:"
                " no checkpoint can hold them; take a step for which none is late before it"
            )
        return found

    def replace(self, parts: Parts) -> None:
        """Gives the first replica of all processes all of it, and the others nothing."""
        for name, own in self._parts.items():
            own.restart(None if self._worker else parts.get(name))


class _Companions:
    """Late gradients beside weights."""

    def of(self, variable: Any) -> LateGradients | None:
        """Those that wait beside a variable."""
        found = vars(variable).get(_ATTRIBUTE)
        return found if found is not None and found.waiting else None

    def made(self, variable: Any) -> LateGradients:
        """Those beside a variable."""
        return late_gradients_of(variable)

    def before_save(self, variables: Iterable[Any]) -> None:
        """Ends what is on its way, on all workers alike."""
        for one in _beside(variables):
            one.settle()
            one.warn_of_rest()

    def before_restore(self, variables: Iterable[Any]) -> None:
        """Forgets what waits: it is of what is no more."""
        for one in _beside(variables):
            one.settle()
            one.clear()

    def before_save_aside(self, variables: Iterable[Any]) -> None:
        """Raises WuShardError where something waits."""
        late = [*_beside(variables)]
        for one in late:
            one.settle()
        if any(one.waiting for one in late):
            raise WuShardError(
                "a checkpoint that is written by another thread has no place for gradients that are"
                " late: call tf_wu_shard.flush_partial_sums() on all workers before, or write it"
                " without experimental_enable_async_checkpoint"
            )


def install() -> None:
    """Has checkpoints hold what is late; a second installation changes nothing."""
    checkpoint_companions.install(_NAME, _Companions())


def late_gradients_of(variable: Any) -> LateGradients:
    """What is late of a weight's gradients; it lasts as long as the weight.

    Args:
        variable: A distributed variable.
    """
    replicas = variable.distribute_strategy.num_replicas_in_sync
    made = LateGradients(variable.name, variable.shape, replicas)
    found: LateGradients = vars(variable).setdefault(_ATTRIBUTE, made)
    return found


def is_late(parts: Parts) -> bool:
    """Whether there is anything in some parts; of lists a row of zeros is as well.

    Args:
        parts: Of one weight, from one place.
    """
    return any(part.size if name.startswith(_LIST) else part.any() for name, part in parts.items())


def _beside(variables: Iterable[Any]) -> Iterable[LateGradients]:
    found = (vars(one).get(_ATTRIBUTE) for one in variables)
    return (one for one in found if one is not None)


def _in_words(names: Iterable[str]) -> str:
    words = {name: "rows of a table and their numbers" for name in LISTS}
    words[FIXED_ROWS] = "rows that are the same in every step"
    return " and ".join(dict.fromkeys(words.get(one, "tensors of its shape") for one in names))


def _together(name: str, parts: Sequence[np.ndarray]) -> np.ndarray:
    """Parts of one name, of replicas or of functions, in their order."""
    if name.startswith(_LIST):
        return np.concatenate(parts)
    total, *others = parts
    for other in others:
        total = total + other
    return total


def _plain(part: np.ndarray) -> np.ndarray:
    """A part of a type that NumPy's files know: each number of a narrower one is a float32, too."""
    return part.astype(np.float32) if part.dtype.kind == "V" else part
