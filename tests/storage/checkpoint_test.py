"""Checkpoints of sharded slots are those that unsharded variables write; they restore anywhere."""

from __future__ import annotations

import itertools
import pathlib
import weakref
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from tests.storage.slots import mirrored, shard, sharded, values_of
from tf_wu_shard.errors import StorageError
from tf_wu_shard.storage.sharded_slot import ShardedSlot

Strategies = Callable[[int], tf.distribute.MirroredStrategy]

_SHAPE = (37, 3)
_ASYNC = tf.train.CheckpointOptions(experimental_enable_async_checkpoint=True)


def _odd_values() -> np.ndarray:
    """Values that survive only a bit-for-bit copy: every NaN pattern, negative zero, denormals."""
    bits = np.random.default_rng(7).integers(0, 2**32, _SHAPE, np.uint32)
    bits[0] = [0x80000000, 0x7FC00001, 0x00000001]
    return bits.view(np.float32)


def _make(strategies: Strategies, replicas: int, shards: bool, value: np.ndarray) -> tf.Variable:
    return (sharded if shards else mirrored)(strategies(replicas), value, name="slot")


def _contents(path: str) -> dict[str, bytes]:
    """Every key of a checkpoint with the bytes stored under it."""
    reader = tf.train.load_checkpoint(path)
    stored = {}
    for key in reader.get_variable_to_shape_map():
        value = reader.get_tensor(key)
        stored[key] = value if isinstance(value, bytes) else value.tobytes()
    return stored


_WAYS = [
    *((4, True, replicas, shards) for replicas in (1, 2, 4, 8) for shards in (True, False)),
    *((replicas, False, 4, True) for replicas in (1, 2, 4, 8)),
    (1, True, 8, True),
    (8, True, 1, False),
]


@pytest.mark.parametrize(("saved_on", "sharded_then", "restored_on", "sharded_now"), _WAYS)
def test_a_checkpoint_restores_bit_for_bit_into_any_number_of_replicas(
    strategy_of: Strategies,
    tmp_path: pathlib.Path,
    saved_on: int,
    sharded_then: bool,
    restored_on: int,
    sharded_now: bool,
) -> None:
    source = _make(strategy_of, saved_on, sharded_then, _odd_values())
    path = tf.train.Checkpoint(slot=source).save(str(tmp_path / "c"))
    target = _make(strategy_of, restored_on, sharded_now, values_of(_SHAPE))
    tf.train.Checkpoint(slot=target).restore(path).assert_consumed()
    for component in target.values:
        assert component.numpy().tobytes() == _odd_values().tobytes()


@pytest.mark.parametrize("options", [None, _ASYNC], ids=["sync", "async"])
def test_the_file_is_the_one_that_an_unsharded_variable_writes(
    strategy_of: Strategies, tmp_path: pathlib.Path, options: tf.train.CheckpointOptions | None
) -> None:
    contents = []
    for shards in (True, False):
        variable = _make(strategy_of, 4, shards, _odd_values())
        checkpoint = tf.train.Checkpoint(slot=variable)
        prefix = str(tmp_path / f"{shards}")
        checkpoint.save(prefix, options=options)
        variable.assign(values_of(_SHAPE))
        path = checkpoint.save(prefix, options=options)
        checkpoint.sync()
        contents.append([_contents(path), _contents(f"{prefix}-1")])
    assert contents[0] == contents[1]
    assert contents[0][0]["slot/.ATTRIBUTES/VARIABLE_VALUE"] == values_of(_SHAPE).tobytes()
    assert contents[0][1]["slot/.ATTRIBUTES/VARIABLE_VALUE"] == _odd_values().tobytes()


def test_an_asynchronous_checkpoint_does_not_read_the_freed_storage_in_its_function(
    strategy_of: Strategies, tmp_path: pathlib.Path
) -> None:
    variable = mirrored(strategy_of(4), values_of(_SHAPE))
    checkpoint = tf.train.Checkpoint(slot=variable)
    checkpoint.save(str(tmp_path / "c"), options=_ASYNC)
    shard(variable)
    variable.assign(_odd_values())
    path = checkpoint.save(str(tmp_path / "c"), options=_ASYNC)
    checkpoint.sync()
    assert _contents(path)["slot/.ATTRIBUTES/VARIABLE_VALUE"] == _odd_values().tobytes()


def test_a_component_alone_saves_and_restores_the_whole_value(
    strategy_of: Strategies, tmp_path: pathlib.Path
) -> None:
    slot = sharded(strategy_of(4), _odd_values())
    path = tf.train.Checkpoint(slot=slot.values[2]).save(str(tmp_path / "c"))
    assert _contents(path)["slot/.ATTRIBUTES/VARIABLE_VALUE"] == _odd_values().tobytes()
    slot.assign(values_of(_SHAPE))
    tf.train.Checkpoint(slot=slot.values[1]).restore(path).assert_consumed()
    assert slot.numpy().tobytes() == _odd_values().tobytes()


def test_restoring_another_shape_is_refused_and_leaves_the_value_whole(
    strategy_of: Strategies, tmp_path: pathlib.Path
) -> None:
    path = tf.train.Checkpoint(slot=tf.Variable(values_of((3, 37)))).save(str(tmp_path / "c"))
    slot = sharded(strategy_of(4), _odd_values())
    with pytest.raises(ValueError, match="incompatible"):
        tf.train.Checkpoint(slot=slot).restore(path)
    assert slot.numpy().tobytes() == _odd_values().tobytes()


def test_a_checkpoint_manager_keeps_restorable_checkpoints(
    strategy_of: Strategies, tmp_path: pathlib.Path
) -> None:
    slot = sharded(strategy_of(4), values_of(_SHAPE))
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(slot=slot), str(tmp_path), 2)
    for step in range(3):
        slot.assign(values_of(_SHAPE, seed=step))
        manager.save()
    other = sharded(strategy_of(2), values_of(_SHAPE))
    for step, path in enumerate(manager.checkpoints, start=1):
        tf.train.Checkpoint(slot=other).restore(path)
        np.testing.assert_array_equal(other.numpy(), values_of(_SHAPE, seed=step))
    slot.assign(tf.zeros(_SHAPE))
    assert manager.restore_or_initialize() == manager.latest_checkpoint
    np.testing.assert_array_equal(slot.numpy(), values_of(_SHAPE, seed=2))


def test_a_restore_that_waits_for_the_variable_reaches_a_slot_sharded_by_then(
    strategy_of: Strategies, tmp_path: pathlib.Path
) -> None:
    source = sharded(strategy_of(4), _odd_values())
    path = tf.train.Checkpoint(slot=source).save(str(tmp_path / "c"))
    waiting = tf.train.Checkpoint()
    waiting.restore(path)
    slot = sharded(strategy_of(2), values_of(_SHAPE))
    waiting.slot = slot
    assert slot.numpy().tobytes() == _odd_values().tobytes()


def test_a_restore_that_waits_for_the_variable_gives_the_value_to_shard(
    strategy_of: Strategies, tmp_path: pathlib.Path
) -> None:
    source = sharded(strategy_of(4), _odd_values())
    path = tf.train.Checkpoint(slot=source).save(str(tmp_path / "c"))
    waiting = tf.train.Checkpoint()
    waiting.restore(path)
    slot = mirrored(strategy_of(2), values_of(_SHAPE))
    waiting.slot = slot
    shard(slot)
    assert slot.numpy().tobytes() == _odd_values().tobytes()


def test_a_name_based_saver_reads_and_restores_the_value(
    strategy_of: Strategies, tmp_path: pathlib.Path
) -> None:
    slot = sharded(strategy_of(4), _odd_values(), name="slot")
    saver = tf.compat.v1.train.Saver([slot])
    path = saver.save(None, str(tmp_path / "c"))
    assert _contents(path) == {"slot": _odd_values().tobytes()}
    slot.assign(values_of(_SHAPE))
    saver.restore(None, path)
    assert slot.numpy().tobytes() == _odd_values().tobytes()


def test_a_restore_writes_the_value_once_not_once_a_component(
    strategy_of: Strategies, tmp_path: pathlib.Path
) -> None:
    variable = mirrored(strategy_of(4), _odd_values())
    path = tf.train.Checkpoint(slot=variable).save(str(tmp_path / "c"))
    slot = shard(variable)
    written: list[str] = []
    write = slot.write_elementwise

    def count(replica: int | None, method: str, operand: tf.Tensor) -> None:
        written.append(method)
        write(replica, method, operand)

    slot.write_elementwise = count  # type: ignore[method-assign]
    tf.train.Checkpoint(slot=variable).restore(path)
    variable.assign(values_of(_SHAPE))
    variable.assign_add(values_of(_SHAPE))
    assert written == ["assign", "assign", "assign_add"]


def test_a_saved_model_holds_the_value(strategy_of: Strategies, tmp_path: pathlib.Path) -> None:
    contents = []
    for shards in (True, False):
        variable = _make(strategy_of, 4, shards, _odd_values())
        module = tf.Module()
        module.slot = variable
        module.weight = tf.Variable(2.0)
        module.double = _times(module.weight)
        directory = tmp_path / f"{shards}"
        tf.saved_model.save(module, str(directory))
        contents.append(_contents(str(directory / "variables" / "variables")))
        loaded = tf.saved_model.load(str(directory))
        assert loaded.slot.numpy().tobytes() == _odd_values().tobytes()
        assert loaded.double(3.0).numpy() == 6.0
    assert _values_only(contents[0]) == _values_only(contents[1])


@pytest.mark.parametrize("expand", [True, False])
def test_a_saved_model_of_a_function_that_reads_the_slot_gives_the_value(
    strategy_of: Strategies, tmp_path: pathlib.Path, expand: bool
) -> None:
    slot = sharded(strategy_of(4), values_of(_SHAPE))
    module = tf.Module()
    module.slot = slot
    module.read = tf.function(lambda: slot * 2.0, input_signature=[])
    policy = tf.saved_model.experimental.VariablePolicy
    options = tf.saved_model.SaveOptions(
        experimental_variable_policy=policy.EXPAND_DISTRIBUTED_VARIABLES if expand else policy.NONE
    )
    tf.saved_model.save(module, str(tmp_path), options=options)
    loaded = tf.saved_model.load(str(tmp_path))
    np.testing.assert_array_equal(loaded.read(), values_of(_SHAPE) * 2)


def _times(weight: tf.Variable) -> Callable[[float], tf.Tensor]:
    @tf.function(input_signature=[tf.TensorSpec([])])
    def times(x: tf.Tensor) -> tf.Tensor:
        return x * weight

    return times


def _values_only(contents: dict[str, bytes]) -> dict[str, bytes]:
    return {key: value for key, value in contents.items() if "OBJECT_GRAPH" not in key}


def test_slots_are_put_together_and_written_one_after_the_other(
    strategy_of: Strategies, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = ((60, 40), (30, 40), (30, 40), (8,))
    slots = [sharded(strategy_of(2), values_of(shape), name="slot") for shape in shapes]
    plain = tf.Variable(3.0)
    kept = tf.train.Checkpoint(slots=slots, plain=plain)
    read, alive, most = ShardedSlot.read, list[weakref.ref[tf.Tensor]](), [0]

    def watched(self: ShardedSlot, replica: int | None = None) -> tf.Tensor:
        value = read(self, replica)
        alive.append(weakref.ref(value))
        held = [one() for one in alive]
        most.append(sum(int(tf.size(one)) for one in held if one is not None))
        return value

    monkeypatch.setattr(ShardedSlot, "read", watched)
    path = kept.save(str(tmp_path / "c"))
    # What the largest takes, whatever there is besides.
    assert len(alive) == 4 and max(most) == 60 * 40
    monkeypatch.undo()
    expected = tf.train.Checkpoint(
        slots=[tf.Variable(values_of(shape)) for shape in shapes], plain=plain
    )
    stored, wanted = _contents(path), _contents(expected.save(str(tmp_path / "e")))
    graph = "_CHECKPOINTABLE_OBJECT_GRAPH"
    assert stored.keys() == wanted.keys()
    assert all(stored[key] == wanted[key] for key in stored.keys() - {graph})
    assert not list(tmp_path.glob("*_temp*"))


def test_a_save_that_fails_leaves_no_parts(
    strategy_of: Strategies, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slots = [sharded(strategy_of(2), values_of((40,)), name=f"slot_{n}") for n in range(3)]
    read, reads = ShardedSlot.read, itertools.count()

    def failing(self: ShardedSlot, replica: int | None = None) -> tf.Tensor:
        if next(reads) == 2:
            raise StorageError("a worker is gone")
        return read(self, replica)

    monkeypatch.setattr(ShardedSlot, "read", failing)
    kept = tf.train.Checkpoint(slots=slots)
    with pytest.raises(StorageError, match="a worker is gone"):
        kept.write(str(tmp_path / "c"))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    monkeypatch.undo()
    kept.read(kept.write(str(tmp_path / "c"))).assert_consumed()
