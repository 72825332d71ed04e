"""Files that Keras writes of a model whose optimizer's slots are sharded are the ordinary ones."""

from __future__ import annotations

import pathlib
import zipfile
from collections.abc import Callable
from typing import Any

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.selection import cases
from tests.storage.slots import shard, values_of

Strategies = Callable[[int], tf.distribute.MirroredStrategy]


def _model(strategy: tf.distribute.Strategy, seed: int, shards: bool) -> keras.Model:
    """A compiled model with a built Adam whose slots hold values of their own."""
    keras.utils.clear_session()
    keras.utils.set_random_seed(seed)
    with strategy.scope():
        model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(7), keras.layers.Dense(3)])
        loss = keras.losses.MeanSquaredError()
        model.compile(keras.optimizers.Adam(0.01), loss, run_eagerly=True)
        model.optimizer.build(model.trainable_variables)
    for index, slot in enumerate(_slots(model)):
        slot.assign(np.abs(values_of(tuple(slot.shape), seed=100 * seed + index)))
        if shards:
            shard(slot.value)
    return model


def _slots(model: keras.Model) -> list[Any]:
    """Adam's moments: all of its variables but the iteration and the learning rate."""
    return list(model.optimizer.variables[2:])


def _state(model: keras.Model) -> list[bytes]:
    variables = [*model.variables, *model.optimizer.variables]
    return [variable.numpy().tobytes() for variable in variables]


def _h5(path: pathlib.Path) -> dict[str, bytes]:
    stored: dict[str, bytes] = {}
    with h5py.File(path) as file:
        file.visititems(
            lambda name, item: (
                stored.update({name: item[()].tobytes()})
                if isinstance(item, h5py.Dataset)
                else None
            )
        )
    return stored


def _keras_weights(path: pathlib.Path, directory: pathlib.Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return _h5(pathlib.Path(archive.extract("model.weights.h5", directory)))


def _checkpoint(prefix: pathlib.Path) -> dict[str, bytes]:
    reader = tf.train.load_checkpoint(str(prefix))
    keys = [key for key in reader.get_variable_to_shape_map() if "OBJECT_GRAPH" not in key]
    return {key: np.asarray(reader.get_tensor(key)).tobytes() for key in keys}


def _assert_holds_slots(stored: dict[str, bytes], model: keras.Model) -> None:
    for slot in _slots(model):
        assert slot.numpy().tobytes() in stored.values()


def test_keras_variables_read_and_assign_as_unsharded(strategy_of: Strategies) -> None:
    plain, slotted = (_model(strategy_of(4), 1, shards) for shards in (False, True))
    for slot, reference in zip(_slots(slotted), _slots(plain), strict=True):
        assert slot.numpy().tobytes() == reference.numpy().tobytes()
        np.testing.assert_array_equal(slot.value, reference.value)
        np.testing.assert_array_equal(slot + 1.0, reference + 1.0)
        assert (slot.path, slot.shape, slot.dtype) == (reference.path, reference.shape, slot.dtype)
        for method in ("assign", "assign_add", "assign_sub"):
            operand = values_of(tuple(slot.shape), seed=8)
            getattr(slot, method)(operand)
            getattr(reference, method)(operand)
            assert slot.numpy().tobytes() == reference.numpy().tobytes()


def test_a_keras_file_is_the_ordinary_one_and_loads_again(
    strategy_of: Strategies, tmp_path: pathlib.Path
) -> None:
    stored = []
    for shards in (True, False):
        model = _model(strategy_of(4), 1, shards)
        path = tmp_path / f"{shards}.keras"
        model.save(path)
        stored.append(_keras_weights(path, tmp_path))
        _assert_holds_slots(stored[-1], model)
        with strategy_of(2).scope():
            loaded = keras.models.load_model(path)
        assert _state(loaded) == _state(model)
    assert stored[0] == stored[1]


def test_an_h5_file_is_the_ordinary_one(strategy_of: Strategies, tmp_path: pathlib.Path) -> None:
    stored = []
    for shards in (True, False):
        model = _model(strategy_of(4), 1, shards)
        path = tmp_path / f"{shards}.h5"
        model.save(path)
        stored.append(_h5(path))
        _assert_holds_slots(stored[-1], model)
        # Keras itself leaves the moments of this model in the file and starts with new ones.
        loaded = keras.models.load_model(path)
        weights = [variable.numpy().tobytes() for variable in model.variables]
        assert [variable.numpy().tobytes() for variable in loaded.variables] == weights
    assert stored[0] == stored[1]


@pytest.mark.parametrize("replicas", cases([1, 2, 4, 8], {2}))
def test_weights_load_into_sharded_slots_on_any_number_of_replicas(
    strategy_of: Strategies, tmp_path: pathlib.Path, replicas: int
) -> None:
    source = _model(strategy_of(4), 1, shards=True)
    source.save(tmp_path / "source.keras")
    target = _model(strategy_of(replicas), 2, shards=True)
    assert _state(target) != _state(source)
    target.load_weights(tmp_path / "source.keras")
    optimizer_state: dict[str, np.ndarray] = {}
    source.optimizer.save_own_variables(optimizer_state)
    target.optimizer.load_own_variables(optimizer_state)
    assert _state(target) == _state(source)


def test_saved_weights_are_the_ordinary_ones(
    strategy_of: Strategies, tmp_path: pathlib.Path
) -> None:
    stored = []
    for shards in (True, False):
        path = tmp_path / f"{shards}.weights.h5"
        _model(strategy_of(4), 1, shards).save_weights(path)
        stored.append(_h5(path))
    assert stored[0] == stored[1]


@pytest.mark.parametrize(("saved", "restored"), cases([(4, 1), (4, 2), (4, 8), (2, 4)], {(4, 2)}))
@pytest.mark.parametrize("shards", [(True, True), (True, False), (False, True)])
def test_a_checkpoint_of_model_and_optimizer_restores_anywhere(
    strategy_of: Strategies,
    tmp_path: pathlib.Path,
    saved: int,
    restored: int,
    shards: tuple[bool, bool],
) -> None:
    source = _model(strategy_of(saved), 1, shards[0])
    saving = tf.train.Checkpoint(model=source, optimizer=source.optimizer)
    path = saving.save(str(tmp_path / "c"))
    _assert_holds_slots(_checkpoint(pathlib.Path(path)), source)
    target = _model(strategy_of(restored), 2, shards[1])
    tf.train.Checkpoint(model=target, optimizer=target.optimizer).restore(path).assert_consumed()
    assert _state(target) == _state(source)


def test_an_exported_model_and_a_saved_model_with_optimizer_hold_the_values(
    strategy_of: Strategies, tmp_path: pathlib.Path
) -> None:
    outputs, stored = [], []
    for shards in (True, False):
        model = _model(strategy_of(4), 1, shards)
        model.export(tmp_path / f"export_{shards}", verbose=False)
        loaded = tf.saved_model.load(str(tmp_path / f"export_{shards}"))
        outputs.append(loaded.serve(np.ones((2, 5), np.float32)).numpy().tobytes())
        module = tf.Module()
        module.slots = [slot.value for slot in _slots(model)]
        tf.saved_model.save(module, str(tmp_path / f"module_{shards}"))
        stored.append(_checkpoint(tmp_path / f"module_{shards}" / "variables" / "variables"))
        _assert_holds_slots(stored[-1], model)
    assert outputs[0] == outputs[1]
    assert stored[0] == stored[1]


def _train(model: keras.Model, epochs: int, callbacks: list[Any] | None = None) -> None:
    inputs, targets = values_of((16, 5), seed=3) / 50, values_of((16, 3), seed=4) / 50
    model.fit(
        inputs, targets, 8, epochs=epochs, shuffle=False, verbose=0, callbacks=callbacks or []
    )


def test_eager_training_with_sharded_slots_is_as_unsharded(strategy_of: Strategies) -> None:
    plain, slotted = (_model(strategy_of(2), 1, shards) for shards in (False, True))
    for model in (plain, slotted):
        _train(model, 2)
    assert _state(slotted) == _state(plain)
    for variable, reference in zip(slotted.variables, plain.variables, strict=True):
        copies = [component.numpy().tobytes() for component in variable.value.values]
        assert copies == [reference.numpy().tobytes()] * 2


class _Killed(Exception):
    pass


def test_backup_and_restore_resumes_with_the_slots(
    strategy_of: Strategies, tmp_path: pathlib.Path
) -> None:
    def stop(epoch: int, logs: Any) -> None:
        if epoch == 1:
            raise _Killed

    straight = _model(strategy_of(2), 1, shards=False)
    _train(straight, 3)
    interrupted = _model(strategy_of(2), 1, shards=True)
    backup = str(tmp_path / "backup")
    kill = keras.callbacks.LambdaCallback(on_epoch_begin=stop)
    with pytest.raises(_Killed):
        _train(interrupted, 3, [keras.callbacks.BackupAndRestore(backup), kill])
    resumed = _model(strategy_of(2), 2, shards=True)
    _train(resumed, 3, [keras.callbacks.BackupAndRestore(backup)])
    assert _state(resumed) == _state(straight)
