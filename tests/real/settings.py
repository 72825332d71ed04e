"""How training is set up: types, callbacks, averages, data from Python."""

from __future__ import annotations

import pathlib
import tempfile
from typing import Any

import keras as k
import numpy as np
import tensorflow as tf
from keras import layers

from tests.real import data
from tests.real.attention import Encoder, Positions
from tests.real.program import MIRRORED, TPU, WORKERS, Program, Trained, after, program


def _net(width: int = 64) -> k.Sequential:
    return k.Sequential(
        [
            k.Input((9, 24)),
            layers.Dense(2 * width, activation="relu"),
            layers.Dense(width, activation="relu"),
            layers.GlobalAveragePooling1D(),
            layers.Dense(width, activation="relu"),
            layers.Dense(10),
        ]
    )


def _rows(count: int) -> tuple[np.ndarray, np.ndarray]:
    return data.rows(count * 9, 24).reshape(count, 9, 24), data.labels(count, 10)


def _loss() -> Any:
    return k.losses.SparseCategoricalCrossentropy(from_logits=True)


@program("a Transformer in mixed_bfloat16; padded_batch of 21 by 8")
def mixed_bfloat16(strategy: tf.distribute.Strategy) -> Trained:
    k.config.set_dtype_policy("mixed_bfloat16")
    wanted = tf.data.Dataset.from_tensor_slices(data.labels(21, 4))
    found = tf.data.Dataset.zip((data.dataset(data.tokens(21, 4, 15, 120)), wanted))
    with strategy.scope():
        inputs = k.Input((None,), dtype="int32")
        x = Encoder(64, 4, 128)(Positions(16, 120, 64)(inputs))
        x = layers.Dense(4)(layers.GlobalAveragePooling1D()(x))
        model = k.Model(inputs, layers.Activation("linear", dtype="float32")(x))
        model.compile(k.optimizers.Adam(1e-3), _loss(), metrics=["accuracy"])
    history = model.fit(found.padded_batch(8), epochs=1, verbose=0)
    return after(model, seen=[history])


@program(
    "mixed_float16 with a scaled loss, which overflows at first; rank-3 rows, 30 by 8",
    refused={
        TPU: "Keras lets each replica decide by itself whether its gradients overflow",
        WORKERS: "Keras lets each worker decide so, and one waits for the other for ever",
    },
)
def mixed_float16(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        k.config.set_dtype_policy("mixed_float16")
        model = _net()
        optimizer = k.optimizers.LossScaleOptimizer(
            k.optimizers.Adam(1e-3), initial_scale=2.0**24, dynamic_growth_steps=4
        )
        model.compile(optimizer, _loss(), metrics=["accuracy"])
    inputs, wanted = _rows(30)
    history = model.fit(inputs, wanted, batch_size=8, epochs=2, verbose=0)
    return after(model, seen=[history])


class Watched(k.callbacks.Callback):
    """Looks at losses, weights and slots while it trains, and changes a rate."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        self.seen.append(logs["loss"] if logs else 0.0)

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        self.seen.append(np.array(self.model.get_weights()[0]))
        self.seen.append(np.array(self.model.optimizer.variables[2]))
        self.model.optimizer.learning_rate.assign(1e-3 / (epoch + 1))


@program("every callback of Keras at once, and one that reads slots; rank-3 rows, 37 by 8")
def callbacks(strategy: tf.distribute.Strategy) -> Trained:
    inputs, wanted = _rows(49)
    with strategy.scope():
        model = _net()
        model.compile(k.optimizers.Adam(1e-2), _loss(), metrics=["accuracy"])
    watched = Watched()
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        best = folder / "best.weights.h5"
        chosen = [
            k.callbacks.ReduceLROnPlateau(monitor="val_loss", patience=1, min_delta=10.0),
            k.callbacks.EarlyStopping(patience=3, restore_best_weights=True),
            k.callbacks.ModelCheckpoint(best, save_weights_only=True, save_best_only=True),
            k.callbacks.ModelCheckpoint(folder / "{epoch:02d}.keras"),
            k.callbacks.BackupAndRestore(folder / "backup"),
            k.callbacks.CSVLogger(folder / "log.csv"),
            k.callbacks.TerminateOnNaN(),
            k.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: None),
            watched,
        ]
        first = model.fit(
            *(inputs[:37], wanted[:37]),
            batch_size=8,
            epochs=3,
            verbose=0,
            callbacks=chosen,
            validation_data=(inputs[37:], wanted[37:]),
            validation_batch_size=8,
        )
        model.load_weights(best)
        second = model.fit(inputs[:37], wanted[:37], batch_size=8, verbose=0)
    return after(model, seen=[first, second, *watched.seen])


@program("averages of the weights swapped in at every epoch's end, and a schedule; 27 rows by 8")
def averaged(strategy: tf.distribute.Strategy) -> Trained:
    inputs, wanted = _rows(35)
    with strategy.scope():
        model = _net()
        optimizer = k.optimizers.AdamW(1e-3, use_ema=True, ema_momentum=0.9)
        model.compile(optimizer, _loss(), metrics=["accuracy"])
    history = model.fit(
        *(inputs[:27], wanted[:27]),
        batch_size=8,
        epochs=3,
        verbose=0,
        callbacks=[
            k.callbacks.SwapEMAWeights(swap_on_epoch=True),
            k.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9),
        ],
        validation_data=(inputs[27:], wanted[27:]),
        validation_batch_size=8,
    )
    return after(model, seen=[history])


@program("a Python generator of batches of 8, 5 and 1; fit, then fit with fewer steps")
def python_generator(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        model = _net()
        model.compile(k.optimizers.SGD(1e-2, momentum=0.9), _loss())

    def batches() -> Any:
        for size in (8, 5, 8, 1, 6):
            yield _rows(size)

    first = model.fit(batches(), epochs=1, verbose=0)
    second = model.fit(batches(), steps_per_epoch=3, epochs=1, verbose=0)
    return after(model, seen=[first, second])


class Shuffled(k.utils.PyDataset):
    """30 rows in batches of 8, in another order every epoch, with weights of examples."""

    def __init__(self) -> None:
        super().__init__(workers=2, max_queue_size=4)
        self.random = np.random.default_rng(4)
        self.order = np.arange(30)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        chosen = self.order[index * 8 : index * 8 + 8]
        inputs, wanted = _rows(30)
        return inputs[chosen], wanted[chosen], 1.0 + 0.1 * chosen

    def on_epoch_end(self) -> None:
        self.random.shuffle(self.order)


@program("PyDataset with two workers, shuffled at every epoch's end, weights of examples; 30 by 8")
def pydataset(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        model = _net()
        model.compile(k.optimizers.Adamax(1e-3), _loss(), weighted_metrics=["accuracy"])
    history = model.fit(Shuffled(), epochs=3, verbose=0)
    return after(model, seen=[history])


@program("train_on_batch with batches of 8, 8 and 3, evaluated in between")
def train_on_batch(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        model = _net()
        model.compile(k.optimizers.RMSprop(1e-3, centered=True), _loss(), metrics=["accuracy"])
    inputs, wanted = _rows(19)
    seen: list[Any] = []
    for start in (0, 8, 16):
        chosen = slice(start, start + 8)
        seen += model.train_on_batch(inputs[chosen], wanted[chosen])
        seen += model.evaluate(inputs[:8], wanted[:8], batch_size=8, verbose=0)
    return after(model, seen=seen)


@program(
    "the gradients of two steps added up before each update; 30 rows by 8",
    refused={
        MIRRORED: "Keras adds up no gradients under a MirroredStrategy, which cannot branch so",
        WORKERS: "Keras adds up no gradients there, as under a MirroredStrategy",
    },
)
def accumulated(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        model = _net()
        optimizer = k.optimizers.AdamW(1e-3, gradient_accumulation_steps=2)
        model.compile(optimizer, _loss())
    inputs, wanted = _rows(30)
    history = model.fit(inputs, wanted, batch_size=8, epochs=2, verbose=0)
    return after(model, seen=[history])


PROGRAMS: tuple[Program, ...] = (
    mixed_bfloat16,
    mixed_float16,
    callbacks,
    averaged,
    python_generator,
    pydataset,
    train_on_batch,
    accumulated,
)
