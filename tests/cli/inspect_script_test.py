"""`wu-shard inspect --script`: scripts are left before they train, and nothing is hurt."""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import textwrap
from typing import Any

import pytest

from tf_wu_shard.cli import main as command_line

NET = """
import sys
import keras
import numpy as np
import tensorflow as tf

x, y = np.zeros((32, 16), "float32"), np.zeros((32, 10), "float32")

def net():
    layers = [keras.layers.Input((16,)), keras.layers.Dense(128, name="hidden")]
    model = keras.Sequential([*layers, keras.layers.Dense(10, name="out")], name="net")
    model.compile("adam", "mse")
    return model
"""

TPU = (
    NET
    + """
resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="")
tf.config.experimental_connect_to_cluster(resolver)
tf.tpu.experimental.initialize_tpu_system(resolver)
with tf.distribute.TPUStrategy(resolver).scope():
    net().fit(x, y)
"""
)


@pytest.fixture(autouse=True, scope="module")
def _tensorflow_was_imported() -> None:
    """It says something when it is: not while a test looks at what is said."""
    importlib.import_module("tensorflow")


@pytest.fixture
def write(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes train.py into the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    return lambda text: (tmp_path / "train.py").write_text(textwrap.dedent(text))


def inspect(*arguments: object) -> int:
    return command_line.main(["inspect", "--script", "train.py", *map(str, arguments)])


def line_of(text: str) -> int:
    """The number of the line of train.py that has some text."""
    lines = pathlib.Path("train.py").read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def test_a_fit_is_left_before_its_first_step_and_writes_nothing(
    write: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    write(
        NET
        + """
import atexit, pathlib

class Writes(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        pathlib.Path("callback").touch()

def main():
    atexit.register(lambda: pathlib.Path("atexit").touch())
    pathlib.Path("log.csv").write_text("old")
    devices = tf.config.list_physical_devices("CPU")
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(devices[0], two)
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        model = net()
    model.evaluate(x, y, verbose=0)
    print("evaluated with", sys.argv[1:])
    kept = [keras.callbacks.CSVLogger("log.csv"), keras.callbacks.ModelCheckpoint("m.keras")]
    try:
        model.fit(x, y, epochs=2, callbacks=[*kept, Writes(), keras.callbacks.TensorBoard("board")])
    except BaseException:
        pathlib.Path("caught").touch()
    finally:
        model.save("finally.keras")

if __name__ == "__main__":
    main()
"""
    )
    assert inspect("--diff", "--format", "json", "--", "--epochs", "3", "--replicas") == 0
    shown = capfd.readouterr()
    assert {p.name for p in pathlib.Path().iterdir()} == {"train.py", "log.csv"}
    assert pathlib.Path("log.csv").read_text() == "old"
    assert "evaluated with ['--epochs', '3', '--replicas']" in shown.err
    answer = json.loads(shown.out)
    assert (answer["form"], answer["verdict"]) == ("Script", "1 function trains")
    place = f"train.py, line {line_of('model.fit')}"
    assert answer["how"].startswith(f"{place}: the script was stopped here, before multi_step")
    trained, by_call = answer["functions"]
    assert trained["verdict"] == "trains: sums 4 gradients over 2 replicas"
    assert by_call["trained_by"] == trained["name"]
    (plan,) = answer["plan"]
    layouts = {v["name"]: v["layout"] for v in plan["variables"]}
    assert layouts == {"net/hidden/kernel": "flat 2048/2", "net/out/kernel": "flat 1280/2"}
    assert {u["optimizer"] for u in answer["updates"]} == {"adam-like"}
    (diff,) = answer["diffs"]
    assert diff["about"].startswith("the step as it was traced, for 2 replicas")
    new = [line for line in diff["lines"] if line.startswith("+") and " = AssignVariable" in line]
    assert len(new) == 4, "two replicas assign two weights that were gathered"
    assert answer["memory"][0]["slots"]["unsharded"] == 8 * (16 * 128 + 128 + 128 * 10 + 10)


@pytest.mark.slow
def test_a_loop_on_one_device_is_left_with_what_was_traced_by_then(
    write: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    write(
        """
        import tensorflow as tf
        tf.config.optimizer.set_experimental_options({"layout_optimizer": False})
        first = tf.Variable(tf.random.normal((64, 64)), name="first")
        second = tf.Variable(tf.random.normal((64, 64)), name="second")
        descent = tf.keras.optimizers.SGD(0.1, momentum=0.9)

        @tf.function
        def reset():
            first.assign(tf.random.normal((64, 64)))

        @tf.function(input_signature=[tf.TensorSpec((8, 64))])
        def one(batch):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((batch @ first) ** 2)
            descent.apply_gradients([(tape.gradient(loss, first), first)])

        @tf.function
        def gradient(batch):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((batch @ second) ** 2)
            return tape.gradient(loss, second)

        @tf.function
        def other(g):
            second.assign_sub(0.1 * g)

        import sys
        sys.stdout = None  # what writes to it fails
        reset()
        one.get_concrete_function()
        while True:
            other(gradient(tf.ones((8, 64))))
        """
    )
    assert inspect("--replicas", 4) == 0
    said = capfd.readouterr().out
    assert said.startswith("Script, ") and "variables: 2 functions train\ntrain.py, line " in said
    assert f"line {line_of('other(gradient')}: the script was stopped here, before other " in said
    assert "1 update: sgd-like" in said and "1 update: momentum-like" in said
    assert said.count("flat 4096/4") == 2
    assert inspect("--function", "absent") == 2
    line = capfd.readouterr().err.splitlines()[-1]
    assert line.endswith("the script traced no function 'absent' that trains")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("x = 1\nraise ValueError('no\\nsuch data')", "train.py, line 2 raised ValueError: no"),
        ("x = (1\n", "train.py, line 1 raised SyntaxError: '(' was never closed"),
        ("raise SystemExit(3)", "train.py ended with status 3 before it trained"),
        ("raise SystemExit('usage')", "train.py ended with status 1 before it trained (usage)"),
        ("import os\nos._exit(7)", "its process ended with status 7 before it trained"),
        ("import os\nos.kill(os.getpid(), 9)", "its process was ended by SIGKILL before it"),
        ("input()", "train.py, line 1 raised EOFError"),
        ("raise ValueError('\\x1b[2J')", "raised ValueError: \\x1b[2J"),
        ("raise ValueError", "train.py, line 1 raised ValueError"),
        (
            "class Mute(Exception):\n    __str__ = None\nraise Mute",
            "train.py, line 3 raised Mute",
        ),
        ("import pickle\npickle.dumps = lambda _: b'x'", "no answer comes of it (UnpicklingError)"),
    ],
)
def test_a_script_that_fails_is_1_and_one_line(
    body: str, said: str, write: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    write(body)
    assert inspect() == 1
    shown = capfd.readouterr()
    (line,) = shown.err.splitlines()
    assert said in line and line.startswith("wu-shard inspect: error: ") and shown.out == ""


@pytest.mark.parametrize("ends", ["raise SystemExit(0)", "raise SystemExit(3)", "raise ValueError"])
def test_how_a_forked_process_ends_is_not_how_the_script_does(
    ends: str, write: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    write(f"""
        import os
        if os.fork() == 0:
            {ends}
        os.wait()
        raise SystemExit("the script itself")
    """)
    assert inspect() == 1
    assert capfd.readouterr().err.splitlines()[-1].endswith("it trained (the script itself)")


@pytest.mark.parametrize("body", ["print('done')", "raise SystemExit(0)", "import sys; sys.exit()"])
def test_a_script_that_trains_nothing_is_0(
    body: str, write: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    write(body)
    assert inspect() == 0
    first, second = capfd.readouterr().out.splitlines()
    assert first == "Script, 0 variables: 0 variable writes, nothing to shard"
    assert second == "The script ran to its end and never imported TensorFlow."


@pytest.mark.slow
def test_a_prediction_is_no_train_step(write: Any, capfd: pytest.CaptureFixture[str]) -> None:
    write(NET + "model = net()\nmodel.evaluate(x, y, verbose=0)\nmodel.predict(x, verbose=0)")
    assert inspect("--format", "markdown") == 0
    said = capfd.readouterr().out
    assert "nothing to shard. The script ran to its end and ran no train step." in said


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            "model = net()\nmodel.compile('sgd', 'mse', run_eagerly=True)\nmodel.fit(x, y)",
            "trains outside of any tf.function",
        ),
        pytest.param(
            """
model, loss = net(), keras.losses.MeanSquaredError()
model.optimizer.build(model.trainable_variables)

@tf.function
def gradients(x, y):
    with tf.GradientTape() as tape:
        value = loss(y, model(x))
    return tape.gradient(value, model.trainable_variables)

model.optimizer.apply(gradients(x, y))  # here
""",
            "trains outside of any tf.function",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            """
v1 = tf.compat.v1
with tf.Graph().as_default():
    weight = v1.get_variable("w", (8, 8), use_resource=True)
    train = v1.train.AdamOptimizer().minimize(tf.reduce_sum(weight ** 2))
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        session.run(train)  # here
""",
            "trains by a session of TensorFlow 1",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["eager", "half eager", "session"],
)
def test_a_step_that_is_no_function_is_told(
    body: str, said: str, write: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    write(NET + body)
    assert inspect() == 1
    line = capfd.readouterr().err.splitlines()[-1]
    place = "model.fit" if "fit" in body else "# here"
    assert f"error: train.py, line {line_of(place)} " in line and said in line


@pytest.mark.slow
def test_keras_without_tensorflow_is_told(write: Any, capfd: pytest.CaptureFixture[str]) -> None:
    write("import os\nos.environ['KERAS_BACKEND'] = 'numpy'\nimport keras\nprint('went on')")
    assert inspect() == 1
    said = capfd.readouterr().err
    assert "train.py uses Keras on numpy" in said.splitlines()[-1] and "went on" not in said


@pytest.mark.slow
def test_legacy_keras_is_left_before_its_first_step_too(
    write: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tf_keras")
    write(
        NET.replace("import keras", "import tf_keras as keras")
        + """
import pathlib, tf_wu_shard
few = tf_wu_shard.ShardingOptions(min_elements=8, on_refusal="raise")
tf.config.optimizer.set_experimental_options({"weight_update_sharding": few})
class Writes(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        pathlib.Path("callback").touch()
net().fit(x, y, callbacks=[Writes(), keras.callbacks.CSVLogger("log.csv")])
"""
    )
    assert inspect() == 0
    said = capfd.readouterr().out
    assert {p.name for p in pathlib.Path().iterdir()} == {"train.py"}
    assert "trains on one device" in said and ": 4 of 4 variables" in said


def test_a_topology_lets_a_script_find_its_tpu(
    write: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    write(TPU)
    assert inspect("--topology", "v5e:2x2") == 0
    said = capfd.readouterr().out
    assert "trains: sums 4 gradients over 4 replicas" in said and "a 2x2 torus" in said


@pytest.mark.slow
def test_without_a_tpu_its_absence_is_told(write: Any, capfd: pytest.CaptureFixture[str]) -> None:
    write(TPU)
    assert inspect() == 1
    line = capfd.readouterr().err.splitlines()[-1]
    assert "error: train.py, line " in line and "this machine has no TPU: --topology NAME" in line


@pytest.mark.parametrize(
    "arguments",
    [["--optimizer", "adam"], ["--replicas", "1"], ["--script", "."], ["--script", "absent.py"]],
    ids=" ".join,
)
def test_a_wrong_usage_runs_nothing(
    arguments: list[str], write: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    write("print('ran')")
    assert inspect(*arguments) == 2
    shown = capfd.readouterr()
    assert shown.err.count("\n") == 1 and "ran" not in shown.out + shown.err.replace("rank", "")


def test_a_pipe_is_no_script(write: Any, capfd: pytest.CaptureFixture[str]) -> None:
    os.mkfifo("pipe.py")
    assert inspect("--script", "pipe.py") == 2
    assert capfd.readouterr().err.endswith("cannot run 'pipe.py': no ordinary file\n")


@pytest.mark.parametrize("arguments", [[], ["one", "two"]])
def test_without_a_script_there_is_one_model(
    arguments: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert command_line.main(["inspect", *arguments]) == 2
    assert capfd.readouterr().err.count("\n") == 1
