"""`wu-shard run` turns the flag on for a script as it is, and says what came of it."""

from __future__ import annotations

import json
import pathlib

import pytest

from tests.cli.command import wu_shard

# Sets up TensorFlow as scripts do: environment first, then devices, then other options.
LOOK = """\
import os, sys
assert "tensorflow" not in sys.modules
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
tf.config.optimizer.set_experimental_options({"constant_folding": False})
import tf_wu_shard
options = tf.config.optimizer.get_experimental_options()
print(options["constant_folding"], options["weight_update_sharding"])
print(len(tf.config.list_logical_devices("CPU")))
sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
"""

TRAIN = """\
import pathlib, sys
import numpy as np
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(64), tf.keras.layers.Dense(1)])
    model.compile("adam", "mse")
inputs = np.ones([8, 64], np.float32)
model.fit(inputs, inputs[:, :1], batch_size=8, epochs=2, verbose=0)
if sys.argv[1:]: raise SystemExit("stopped after training")
"""


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """Scripts to run."""
    (tmp_path / "look.py").write_text(LOOK)
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "none.py").write_text("print('no TensorFlow here')\n")
    (tmp_path / "off.py").write_text(
        "import tensorflow as tf\n"
        "tf.config.optimizer.set_experimental_options({'weight_update_sharding': False})\n"
    )
    (tmp_path / "away.py").write_text("import os; os.chdir('/')\n")
    (tmp_path / "fork.py").write_text(
        "import os, sys\npid = os.fork()\nif not pid: sys.exit(5)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    )
    return tmp_path


def test_the_flag_is_on_and_all_else_is_as_the_script_sets_it(folder: pathlib.Path) -> None:
    done = wu_shard("run", "--min-elements", "7", "--deterministic", "look.py", cwd=folder)
    options, devices = done.stdout.splitlines()
    assert options.startswith("False ShardingOptions(min_elements=7,")
    assert "deterministic=True" in options and "on_refusal='warn'" in options
    assert devices == "2"
    assert done.returncode == 0


def test_a_script_that_sharded_nothing_is_warned_of_or_fails(folder: pathlib.Path) -> None:
    warned = wu_shard("run", "look.py", cwd=folder)
    assert warned.returncode == 0
    assert "wu-shard: warning: nothing was sharded: no function that" in warned.stderr
    failed = wu_shard("run", "--on-refusal", "raise", "look.py", cwd=folder)
    assert failed.returncode == 1
    assert "wu-shard: error: nothing was sharded: no function that" in failed.stderr


def test_the_scripts_own_failure_is_kept(folder: pathlib.Path) -> None:
    done = wu_shard(
        "run", "--on-refusal", "raise", "--report", "r.json", "look.py", "9", cwd=folder
    )
    assert done.returncode == 9
    assert json.loads((folder / "r.json").read_text()) == []


@pytest.mark.slow
def test_a_script_without_tensorflow_or_with_the_flag_off_is_told_so(folder: pathlib.Path) -> None:
    assert "never imported TensorFlow" in wu_shard("run", "none.py", cwd=folder).stderr
    off = wu_shard("run", "off.py", cwd=folder)
    assert "the script turned weight_update_sharding off" in off.stderr


def test_the_report_goes_where_it_was_asked_for_from(folder: pathlib.Path) -> None:
    assert wu_shard("run", "--report", "r.json", "away.py", cwd=folder).returncode == 0
    assert json.loads((folder / "r.json").read_text()) == []


def test_an_unsharded_run_takes_the_same_command_line_and_reports_that_nothing_was_asked_for(
    folder: pathlib.Path,
) -> None:
    options = ("--min-elements", "7", "--on-refusal", "raise", "--report", "r.json")
    done = wu_shard("run", "--unsharded", *options, "none.py", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    (report,) = json.loads((folder / "r.json").read_text())
    assert report["verdict"] == "nothing sharded" and not report["variables"]
    assert "nothing was asked for" in report["left_alone"][0]["reason"]


def test_a_forked_child_ends_on_its_own_and_reports_nothing(folder: pathlib.Path) -> None:
    done = wu_shard("run", "fork.py", cwd=folder)
    assert done.stdout == "5\n"
    assert done.stderr.count("wu-shard:") == 1


@pytest.mark.parametrize("ending", [pytest.param((), marks=pytest.mark.slow), ("stop",)])
def test_a_training_script_is_sharded_and_reported_however_it_ends(
    folder: pathlib.Path, ending: tuple[str, ...]
) -> None:
    done = wu_shard("run", "--report", "r.json", "train.py", *ending, cwd=folder)
    assert done.returncode == len(ending), done.stderr
    (report,) = json.loads((folder / "r.json").read_text())
    assert [variable["shape"] for variable in report["variables"]] == [[64, 64]]
    assert len(report["left_alone"]) == 3
    (verdict,) = [line for line in done.stderr.splitlines() if line.startswith("wu-shard: ")]
    assert ": 1 of 4 variables over 2 replicas" in verdict
