"""The report in TensorBoard: what is written, and what is seen in a browser."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pathlib
import re
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_wu_shard
from tests.report.browser import MISSING, Browser, executable
from tf_wu_shard import tensorboard_report
from tf_wu_shard.errors import StorageError

StrategyOf = Callable[[int], tf.distribute.Strategy]
Written = dict[str, list[bytes | float]]


@pytest.fixture(autouse=True)
def _flag_off() -> Iterator[None]:
    tf_wu_shard.clear_reports()
    yield
    tf.config.optimizer.set_experimental_options({"weight_update_sharding": False})
    tf_wu_shard.clear_reports()


def model_of(strategy: tf.distribute.Strategy) -> keras.Model:
    """A compiled net of which the biases are too small to be sharded."""
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.layers.Input((40,)),
                keras.layers.Dense(80, name="hidden"),
                keras.layers.Dense(40, name="out"),
            ],
            name="net",
        )
        model.compile(keras.optimizers.Adam(), "mse")
    return model


def fit(model: keras.Model, log_dir: pathlib.Path, rows: int = 8) -> None:
    """Two batches."""
    data = np.ones((2 * rows, 40), np.float32)
    report = tf_wu_shard.report.TensorBoardReport(log_dir)
    model.fit(data, data, batch_size=rows, verbose=0, callbacks=[report])


def turn_on(**options: object) -> None:
    """Sets the flag."""
    chosen = tf_wu_shard.ShardingOptions(**options)  # type: ignore[arg-type]
    tf.config.optimizer.set_experimental_options({"weight_update_sharding": chosen})


def written(log_dir: pathlib.Path) -> tuple[Written, list[tf.compat.v1.GraphDef]]:
    """The values of each tag in order, and the graphs, as the event files hold them."""
    values: Written = {}
    graphs = []
    for file in sorted(log_dir.rglob("events.out.*")):
        for record in tf.data.TFRecordDataset(str(file)):
            event = tf.compat.v1.Event.FromString(record.numpy())
            if event.graph_def:
                graphs.append(tf.compat.v1.GraphDef.FromString(event.graph_def))
            for value in event.summary.value:
                values.setdefault(value.tag, []).append(tf.make_ndarray(value.tensor).item())
    return values, graphs


class _Gone:
    """A slot as it is when its variable no longer exists, while a graph still has its shards."""

    @property
    def variable(self) -> object:
        raise StorageError("the variable of the sharded slot no longer exists")


def test_graphs_of_a_model_that_is_gone_do_no_harm(
    tmp_path: pathlib.Path, strategy_of: StrategyOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn_on()
    monkeypatch.setattr(tensorboard_report, "distributed_variable_of", lambda handle: None)
    monkeypatch.setattr(tensorboard_report, "slot_of_packed", lambda handle: _Gone())
    fit(model_of(strategy_of(2)), tmp_path)
    values, graphs = written(tmp_path)
    assert values and not graphs


def test_report_scalars_and_graph_are_written_once(
    tmp_path: pathlib.Path, strategy_of: StrategyOf
) -> None:
    turn_on()
    model = model_of(strategy_of(2))
    fit(model, tmp_path)
    (report,) = tf_wu_shard.reports()
    values, graphs = written(tmp_path)
    assert {tag: len(own) for tag, own in values.items()} == dict.fromkeys(values, 1)
    (text,) = values["wu_shard/report"]
    assert isinstance(text, bytes)
    assert rb"| net/hidden/kernel | flat 3200/2 | momentum, velocity | 0 |" in text
    assert rb"| net/hidden/bias | 80 elements, below min\_elements=1024 |" in text
    slots = report.slot_bytes_per_replica
    assert values["wu_shard/sharded slots, bytes"] == [slots.sharded]
    assert values["wu_shard/unsharded slots, bytes"] == [slots.unsharded]
    assert values["wu_shard/pass, ms"] == [pytest.approx(report.pass_ms)]
    (graph,) = graphs
    names = [node.name for node in graph.node]
    assert any(name.startswith("wu_shard/bucket_0/reduce_scatter") for name in names)
    assert any("/wu_shard/net/hidden/kernel/update" in name for name in names)


def test_a_step_traced_before_is_told_again_and_one_traced_anew_is_told_anew(
    tmp_path: pathlib.Path, strategy_of: StrategyOf
) -> None:
    turn_on()
    model = model_of(strategy_of(2))
    fit(model, tmp_path / "one")
    fit(model, tmp_path / "two")
    one, two = (written(tmp_path / name)[0] for name in ("one", "two"))
    assert one == two
    # Another optimizer: another trace.
    with strategy_of(2).scope():
        model.compile(keras.optimizers.Adam(), "mse")
    fit(model, tmp_path / "three", rows=6)
    three, graphs = written(tmp_path / "three")
    assert len(three["wu_shard/report"]) == 1
    assert graphs


def test_a_tpu_step_is_shown_with_its_graph(
    tmp_path: pathlib.Path, emulated: Callable[..., tf.distribute.Strategy]
) -> None:
    turn_on()
    fit(model_of(emulated(2)), tmp_path)
    values, (graph,) = written(tmp_path)
    (text,) = values["wu_shard/report"]
    assert isinstance(text, bytes)
    assert b"- replicas: topology not known" in text
    assert any(node.op == "XlaReduceScatter" for node in graph.node)


def test_with_the_flag_off_it_says_so(tmp_path: pathlib.Path, strategy_of: StrategyOf) -> None:
    fit(model_of(strategy_of(2)), tmp_path)
    values, graphs = written(tmp_path)
    ((tag, (text,)),) = values.items()
    assert tag == "wu_shard/report"
    assert isinstance(text, bytes)
    assert b"the flag `weight_update_sharding` is off" in text
    assert not graphs


def test_a_step_traced_before_the_flag_was_set_is_said_to_be(
    tmp_path: pathlib.Path, strategy_of: StrategyOf
) -> None:
    model = model_of(strategy_of(2))
    fit(model, tmp_path / "off")
    turn_on()
    fit(model, tmp_path / "on")
    (text,) = written(tmp_path / "on")[0]["wu_shard/report"]
    assert isinstance(text, bytes)
    assert b"no report tells of this model's train step" in text


def test_nothing_sharded_is_told_with_the_reason(
    tmp_path: pathlib.Path, strategy_of: StrategyOf
) -> None:
    turn_on(min_elements=10**6)
    fit(model_of(strategy_of(2)), tmp_path)
    values, graphs = written(tmp_path)
    (text,) = values["wu_shard/report"]
    assert isinstance(text, bytes)
    assert b"nothing sharded: " in text
    assert rb"| net/out/kernel | 3200 elements, below min\_elements=1000000 |" in text
    assert not graphs


def test_the_callback_is_loaded_when_it_is_asked_for() -> None:
    program = (
        "import sys, tf_wu_shard; r = tf_wu_shard.report; assert 'tensorflow' not in sys.modules;"
        " print(r.TensorBoardReport.__name__); assert 'tensorflow' in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.split() == [b"TensorBoardReport"]
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = tf_wu_shard.report.Nothing


def no_tensorboard() -> str:
    """Why TensorBoard cannot be looked at, or ""."""
    if importlib.util.find_spec("tensorboard") is None:
        return "TensorBoard is not installed (pip install 'tf-wu-shard[test]')"
    return "" if executable() else MISSING


@contextlib.contextmanager
def tensorboard(log_dir: pathlib.Path) -> Iterator[str]:
    """Starts a TensorBoard, which ends with the block; its address."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(log_dir)]
    with (
        open(log_dir / "tensorboard.log", "wb") as log,
        subprocess.Popen(
            [*command, "--port", str(port), "--load_fast", "false"], stdout=log, stderr=log
        ) as process,
    ):
        try:
            address = f"http://localhost:{port}"
            for _ in range(240):
                assert process.poll() is None, (log_dir / "tensorboard.log").read_text()
                with contextlib.suppress(urllib.error.URLError):
                    urllib.request.urlopen(address, timeout=5).close()
                    break
                _wait(0.25)
            yield address
        finally:
            process.terminate()


def _wait(seconds: float) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(["sleep", "60"], timeout=seconds, check=False)


@pytest.mark.slow
@pytest.mark.skipif(bool(no_tensorboard()), reason=no_tensorboard())
def test_tensorboard_shows_text_scalars_and_graph(
    tmp_path: pathlib.Path, strategy_of: StrategyOf
) -> None:
    turn_on()
    fit(model_of(strategy_of(2)), tmp_path)
    pictures = pathlib.Path(os.environ.get("WU_SHARD_PICTURES", tmp_path))
    with tensorboard(tmp_path) as address, Browser(str(executable())) as browser:
        browser.open(f"{address}/?darkMode=false#text", 1280, dark=False)
        text = browser.wait_for(lambda text: "flat 3200/2" in text)
        assert re.search(r": 2 of 4 variables over 2 replicas", text)
        assert "80 elements, below min_elements=1024" in text
        browser.picture(pictures / "text.png", whole=False)
        browser.open(f"{address}/?darkMode=false#timeseries", 1280, dark=False)
        text = browser.wait_for(lambda text: "sharded slots" in text)
        assert "pass, ms" in text
        browser.picture(pictures / "scalars.png", whole=False)
        browser.open(f"{address}/?darkMode=false#graphs", 1280, dark=False)
        browser.wait_for(lambda text: "wu_shard" in text)
        browser.picture(pictures / "graph.png", whole=False)
