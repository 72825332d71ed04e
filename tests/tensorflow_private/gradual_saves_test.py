"""Values in shards are read some at a time, and written before the next ones are read."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.checkpoint import functional_saver
from tensorflow.python.trackable import base
from tensorflow.python.training.saving import saveable_object

from tf_wu_shard.tensorflow_private import gradual_saves

HOST = "/job:localhost/replica:0/task:0/device:CPU:0"


class _Saveable(saveable_object.SaveableObject):
    def __init__(self, owner: InShards, specs: Any, name: str) -> None:
        super().__init__(owner, specs, name)
        self._owner = owner

    def restore(self, restored_tensors: Any, restored_shapes: Any) -> Any:
        (self._owner.value,) = restored_tensors
        return tf.no_op()


class InShards(base.Trackable):
    """A value that is put together when it is read, as that of a variable in shards."""

    def __init__(self, name: str, size: int, done: list[str], marked: bool = True) -> None:
        self.value = tf.range(size, dtype=tf.float32)
        self._name = name
        self._done = done
        self._num_bytes = 4 * size if marked else 0
        self.fails = False

    def _read(self) -> tf.Tensor:
        if self.fails:
            raise OSError("a worker is gone")
        self._done.append(f"read {self._name}")
        return self.value

    def _gather_saveables_for_checkpoint(self) -> dict[str, Callable[..., Any]]:
        def saveable(name: str = "") -> _Saveable:
            spec = saveable_object.SaveSpec(self._read, "", name, tf.float32, HOST)
            gradual_saves.mark([spec], self._num_bytes)
            return _Saveable(self, [spec], name)

        return {"VALUE": saveable}


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch, logical_cpus: list[str]) -> list[str]:
    """What was read and which parts were written, in this order."""
    monkeypatch.setattr(
        functional_saver.MultiDeviceSaver, "save", functional_saver.MultiDeviceSaver.save
    )
    gradual_saves.install()
    found: list[str] = []
    write = tf.raw_ops.SaveV2

    def noted(**given: Any) -> Any:
        found.append(
            " ".join(["write", *(name.partition("/")[0] for name in given["tensor_names"])])
        )
        return write(**given)

    monkeypatch.setattr(tf.raw_ops, "SaveV2", noted)
    return found


def checkpoint_of(done: list[str], **sizes: int) -> tf.train.Checkpoint:
    return tf.train.Checkpoint(**{name: InShards(name, size, done) for name, size in sizes.items()})


def test_each_large_value_is_written_before_the_next_is_read(
    done: list[str], tmp_path: pathlib.Path
) -> None:
    checkpoint_of(done, a=4, b=4, c=4).write(str(tmp_path / "c"))
    assert done == ["read a", "write a", "read b", "write b", "read c", "write c"]


def test_small_ones_go_together_as_far_as_the_largest_takes(
    done: list[str], tmp_path: pathlib.Path
) -> None:
    checkpoint_of(done, a=3, b=2, c=3, d=5, e=1).write(str(tmp_path / "c"))
    written = [line for line in done if line.startswith("write")]
    assert written == ["write a b", "write c", "write d", "write e"]


def test_the_checkpoint_is_whole_and_no_part_is_left(
    done: list[str], tmp_path: pathlib.Path
) -> None:
    checkpoint = checkpoint_of(done, a=4, b=3)
    path = checkpoint.write(str(tmp_path / "c"))
    checkpoint.a.value = checkpoint.b.value = tf.zeros(0)
    checkpoint.read(path).assert_consumed()
    np.testing.assert_array_equal(checkpoint.a.value, np.arange(4))
    np.testing.assert_array_equal(checkpoint.b.value, np.arange(3))
    assert {file.name.partition("-")[0] for file in tmp_path.iterdir()} == {"c.index", "c.data"}


def test_a_save_that_fails_leaves_nothing_and_the_next_one_succeeds(
    done: list[str], tmp_path: pathlib.Path
) -> None:
    checkpoint = checkpoint_of(done, a=4, b=4)
    checkpoint.b.fails = True
    with pytest.raises(OSError, match="a worker is gone"):
        checkpoint.write(str(tmp_path / "c"))
    assert "write a" in done
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == []
    checkpoint.b.fails = False
    path = checkpoint.write(str(tmp_path / "c"))
    saved = {name.partition("/")[0] for name, _ in tf.train.list_variables(path)}
    assert {"a", "b"} < saved


def test_what_is_in_no_shards_tensorflow_reads_and_writes_itself(
    done: list[str], tmp_path: pathlib.Path
) -> None:
    whole = {name: InShards(name, 4, done, marked=False) for name in "ab"}
    tf.train.Checkpoint(**whole).write(str(tmp_path / "c"))
    assert done == ["read a", "read b"]
