"""Lets a checkpoint read variables that live in shards one after the other, and write each at once.

TensorFlow reads all variables of a checkpoint before it writes the first. Of variables in shards
that makes whole values beside the shards, as much as sharding them had spared. Here some are read,
no more than the largest of them takes, written into a part of their own and forgotten before the
next are read. The checkpoint is the one that it always was, but for the number of its data files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.checkpoint import functional_saver
from tensorflow.python.training.saving import saveable_object

from tf_wu_shard.tensorflow_private.wrapping import wrap_once

# What marks the specification of a value that is put together of shards: the bytes it takes whole.
_BYTES = "_wu_shard_bytes"

# What stands for the parts among TensorFlow's own savers of parts.
_SAVER = "wu_shard_parts"


def mark(specs: Sequence[saveable_object.SaveSpec], num_bytes: int) -> None:
    """Notes that a value is put together of shards when it is read.

    Args:
        specs: What says how it is saved.
        num_bytes: What it takes whole.
    """
    for spec in specs:
        setattr(spec, _BYTES, num_bytes)


def install() -> None:
    """Changes how checkpoints are saved eagerly; a second installation changes nothing."""
    wrap_once(functional_saver.MultiDeviceSaver, "save", _saved)


def _saved(save: Callable[..., Any], saver: Any, file_prefix: Any, options: Any = None) -> Any:
    by_task = saver._shardable_tensors_by_task
    marked = [one for tensors in by_task.values() for one in tensors if _num_bytes(one)]
    # A function that saves reads what it saves when it runs.
    if not marked or not tf.executing_eagerly() or saver._num_unique_tasks > 1:
        return save(saver, file_prefix, options)
    gradual = {id(one) for one in marked}
    if len(marked) == sum(map(len, by_task.values())):
        # TensorFlow writes one part at least.
        gradual.remove(id(marked[-1]))
        marked.pop()
    others, savers = dict(by_task), dict(saver._registered_savers)
    for task, tensors in by_task.items():
        others[task] = [one for one in tensors if id(one) not in gradual]
    device = getattr(options, "experimental_io_device", None) or next(iter(by_task)).to_string()
    prefix = tf.compat.as_str(tf.get_static_value(tf.convert_to_tensor(file_prefix)))

    def save_parts(_: Any) -> list[tf.Tensor]:
        return _written_parts(prefix, marked, device)

    savers[_SAVER] = (save_parts, lambda *_: None)
    before = by_task, saver._registered_savers
    saver._shardable_tensors_by_task, saver._registered_savers = others, savers
    try:
        return save(saver, file_prefix, options)
    except BaseException:
        _remove_parts(prefix)
        raise
    finally:
        saver._shardable_tensors_by_task, saver._registered_savers = before


def _num_bytes(tensor: Any) -> int:
    return int(getattr(tensor._tensor_save_spec, _BYTES, 0))


def _written_parts(prefix: str, tensors: Sequence[Any], device: str) -> list[tf.Tensor]:
    """Writes values into parts of a checkpoint; the prefixes of those, which are merged later."""
    prefixes = []
    for number, together in enumerate(_groups(tensors)):
        with tf.device(device):
            part = tf.constant(f"{_parts_of(prefix)}-{number:05d}")
        prefixes.append(part)
        _write(part, together, device)
    return prefixes


def _write(part: tf.Tensor, tensors: Sequence[Any], device: str) -> None:
    names, slices, values = [], [], []
    for one in tensors:
        with tf.device(one.device):
            value = one._tensor_save_spec.tensor
        if value is not None:
            names.append(one.checkpoint_key)
            slices.append(one.slice_spec)
            values.append(value)
    with tf.device(device):
        tf.raw_ops.SaveV2(prefix=part, tensor_names=names, shape_and_slices=slices, tensors=values)


def _groups(tensors: Sequence[Any]) -> Iterator[list[Any]]:
    """Runs of tensors that take no more than the largest of all does."""
    most = max(map(_num_bytes, tensors), default=0)
    group, held = list[Any](), 0
    for one in tensors:
        if group and held + _num_bytes(one) > most:
            yield group
            group, held = [], 0
        group.append(one)
        held += _num_bytes(one)
    if group:
        yield group


def _parts_of(prefix: str) -> str:
    """What the names of parts begin with: beside TensorFlow's own, which it removes in the end."""
    # Where files cannot be moved, there is no folder of their own for parts.
    return f"{prefix}.part-wu_shard" if prefix.startswith("s3://") else f"{prefix}_temp/wu_shard"


def _remove_parts(prefix: str) -> None:
    """Removes what a save that failed has written."""
    for path in tf.io.gfile.glob(f"{_parts_of(prefix)}-*"):
        tf.io.gfile.remove(path)
