"""`wu-shard run --emulate-tpu` runs TPU scripts as they are on a machine without a TPU."""

from __future__ import annotations

import pathlib

import pytest

from tests.cli.command import wu_shard

# What TensorFlow's guide to TPUs does, in its words and order.
GUIDE = """\
import sys
import numpy as np
import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="grpc://10.0.0.2:8470")
tf.config.experimental_connect_to_cluster(resolver)
tf.tpu.experimental.initialize_tpu_system(resolver)
print(len(tf.config.list_logical_devices("TPU")), len(tf.config.list_physical_devices("TPU")))
print(resolver.cluster_spec().as_dict()["worker"], resolver.num_accelerators())
with tf.device("/TPU:0"):
    assert float(tf.reduce_sum(tf.ones([2, 2]))) == 4
strategy = tf.distribute.TPUStrategy(resolver)
print(type(strategy).__name__, strategy.num_replicas_in_sync)

inputs = np.random.default_rng(0).random((32, 64), dtype=np.float32)
classes = np.arange(32) % 10
def dataset(batch):
    return tf.data.Dataset.from_tensor_slices((inputs, classes)).repeat().batch(batch)
def build():
    layers = tf.keras.layers
    return tf.keras.Sequential([layers.Input((64,)), layers.Dense(16), layers.Dense(10)])
loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
with strategy.scope():
    model = build()
    model.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
history = model.fit(dataset(16), epochs=2, steps_per_epoch=2, verbose=0).history["loss"]
print("learns", history[1] < history[0])

with strategy.scope():
    model = build()
    optimizer = tf.keras.optimizers.Adam()
    mean_loss = tf.keras.metrics.Mean()
per_replica = 16 // strategy.num_replicas_in_sync
batches = iter(strategy.distribute_datasets_from_function(lambda _: dataset(per_replica)))
@tf.function
def train_steps(iterator, steps):
    def step(batch):
        images, labels = batch
        with tf.GradientTape() as tape:
            loss = tf.nn.compute_average_loss(loss_of(labels, model(images, training=True)))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        mean_loss.update_state(loss * strategy.num_replicas_in_sync)
    for _ in tf.range(steps):
        strategy.run(step, args=(next(iterator),))
train_steps(batches, tf.convert_to_tensor(3))
print(int(optimizer.iterations.numpy()), np.isfinite(float(mean_loss.result())), sys.argv[1:])
tf.tpu.experimental.shutdown_tpu_system(resolver)
"""

# Less usual ways to a strategy.
ODD = """\
import tensorflow as tf
resolver = tf.distribute.cluster_resolver.TPUClusterResolver.connect("local")
topology = tf.tpu.experimental.initialize_tpu_system()
print(topology.mesh_shape.tolist(), topology.num_tasks)
assignment = tf.tpu.experimental.DeviceAssignment.build(topology, num_replicas=4)
strategy = tf.distribute.TPUStrategy(resolver, experimental_device_assignment=assignment)
@tf.function
def step():
    return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", 1.0))
print([float(value) for value in strategy.experimental_local_results(step())])
tf.tpu.experimental.shutdown_tpu_system()
print("done")
"""

WIDE = """\
import tensorflow as tf
resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
topology = tf.tpu.experimental.initialize_tpu_system(resolver)
assignment = tf.tpu.experimental.DeviceAssignment.build(topology, [2, 1, 1, 1], num_replicas=2)
tf.distribute.TPUStrategy(resolver, experimental_device_assignment=assignment)
"""


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """Scripts to run."""
    for name, script in (("guide.py", GUIDE), ("odd.py", ODD), ("wide.py", WIDE)):
        (tmp_path / name).write_text(script)
    (tmp_path / "none.py").write_text("print('no TensorFlow here')\n")
    return tmp_path


def test_a_script_like_the_guides_runs_unmodified(folder: pathlib.Path) -> None:
    done = wu_shard("run", "--emulate-tpu", "4", "--unsharded", "guide.py", "--own", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "4 4",
        "['localhost'] {'TPU': 4}",
        "TPUStrategyV2 4",
        "learns True",
        "3 True ['--own']",
    ]
    assert "wu-shard" not in done.stderr


@pytest.mark.slow
def test_without_unsharded_the_flag_is_on(folder: pathlib.Path) -> None:
    done = wu_shard("run", "--emulate-tpu", "2", "odd.py", cwd=folder)
    assert done.returncode != 0 and "num_replicas" in done.stderr
    assert "wu-shard: warning: nothing was sharded" in done.stderr


def test_a_topology_is_what_the_script_sees(folder: pathlib.Path) -> None:
    command = ("run", "--emulate-tpu", "4", "--unsharded")
    for topology, shape in (((), [4, 1, 1, 1]), (("--topology", "v5e:2x2"), [2, 2, 1, 1])):
        done = wu_shard(*command, *topology, "odd.py", cwd=folder)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == [f"{shape} 1", "[4.0, 4.0, 4.0, 4.0]", "done"]


def test_replicas_of_several_cores_are_refused(folder: pathlib.Path) -> None:
    done = wu_shard("run", "--emulate-tpu", "4", "--unsharded", "wide.py", cwd=folder)
    assert done.returncode == 1
    assert "EmulationError: the device assignment spreads each replica over 2 cores" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--emulate-tpu", "0"), "--emulate-tpu needs at least 1 replica, not 0"),
        (("--emulate-tpu", "many"), "argument --emulate-tpu: invalid int value: 'many'"),
        (("--topology", "v5e:2x2"), "--topology goes with --emulate-tpu N"),
        (("--emulate-tpu", "2", "--topology", "v5e:2x2"), "'v5e:2x2' has 4 devices, not 2"),
        (
            ("--emulate-tpu", "2", "--topology", "v5e:1x2"),
            "unknown topology 'v5e:1x2'; choose one of v2:2x2, v2:4x4",
        ),
    ],
)
def test_wrong_usage_is_told_before_the_script_runs(
    folder: pathlib.Path, arguments: tuple[str, ...], message: str
) -> None:
    done = wu_shard("run", *arguments, "none.py", cwd=folder)
    assert done.returncode == 2
    assert message in done.stderr and not done.stdout


def test_a_script_without_tensorflow_needs_no_tpu(folder: pathlib.Path) -> None:
    done = wu_shard("run", "--emulate-tpu", "2", "--unsharded", "none.py", cwd=folder)
    assert (done.returncode, done.stdout) == (0, "no TensorFlow here\n")
