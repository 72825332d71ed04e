"""The flag in TensorFlow's context: checked when set, shown when read, never half applied."""

from __future__ import annotations

import copy
import pathlib
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
import tensorflow as tf
from tensorflow.python.eager import context as tf_context

from tf_wu_shard import config
from tf_wu_shard.config import FLAG, ShardingOptions
from tf_wu_shard.errors import OptionError
from tf_wu_shard.tensorflow_private import context_options

Context = tf_context.Context

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def context() -> Iterator[tf_context.Context]:
    """The process's context with no options set; what it held is put back."""
    live = tf_context.context()
    held = dict(live._optimizer_experimental_options)
    live._optimizer_experimental_options.clear()
    config.install_flag()
    yield live
    live._optimizer_experimental_options.clear()
    live._optimizer_experimental_options.update(held)


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorFlow as it is before our import."""
    for name in ("set_optimizer_experimental_options", "get_optimizer_experimental_options"):
        own = getattr(Context, name)._wu_shard_original
        monkeypatch.setattr(Context, name, own)


def _set(**options: object) -> None:
    tf.config.optimizer.set_experimental_options(options)


def test_the_flag_is_shown_as_it_was_set_and_read_live() -> None:
    assert config.current_options() is None
    assert FLAG not in tf.config.optimizer.get_experimental_options()
    options = ShardingOptions(min_elements=7)
    for value, meant in ((True, ShardingOptions()), (options, options), (False, None)):
        _set(weight_update_sharding=value)
        assert tf.config.optimizer.get_experimental_options()[FLAG] is value
        assert config.current_options() == meant


def test_setting_other_options_leaves_the_flag_and_setting_the_flag_leaves_them() -> None:
    _set(weight_update_sharding=True)
    _set(constant_folding=False)
    _set(min_graph_nodes=5)
    shown = tf.config.optimizer.get_experimental_options()
    assert (shown[FLAG], shown["constant_folding"], shown["min_graph_nodes"]) == (True, False, 5)
    _set(weight_update_sharding=False)
    assert tf.config.optimizer.get_experimental_options()["constant_folding"] is False


@pytest.mark.parametrize("wrong", [1, "yes", {"min_elements": 1}])
def test_a_wrong_value_raises_through_either_door_and_nothing_is_applied(
    context: tf_context.Context, wrong: object
) -> None:
    before = tf.config.optimizer.get_experimental_options()
    doors = (
        tf.config.optimizer.set_experimental_options,
        context.set_optimizer_experimental_options,
    )
    for door in doors:
        with pytest.raises(OptionError):
            door({"constant_folding": False, FLAG: wrong, "remapping": False})
    assert tf.config.optimizer.get_experimental_options() == before


@pytest.mark.parametrize(
    "misspelt",
    [
        "weight_update_shard",
        "weights_update_sharding",
        "weight_update",
        "sharded_weight_update",
        "update_weight_sharding",
        "WeightUpdateSharding",
        "WEIGHT-UPDATE-SHARDING",
        " weight_update_sharding",
        "wieght_update_sharding",
        "xla_weight_update_sharding",
    ],
)
def test_a_misspelt_key_raises_with_the_valid_ones(misspelt: str) -> None:
    before = tf.config.optimizer.get_experimental_options()
    with pytest.raises(OptionError) as raised:
        tf.config.optimizer.set_experimental_options({"remapping": False, misspelt: True})
    message = str(raised.value)
    assert all(repr(name) in message for name in (misspelt, FLAG))
    assert all(key in message for key in context_options.TENSORFLOW_KEYS)
    assert tf.config.optimizer.get_experimental_options() == before


@pytest.mark.parametrize(
    "other",
    ["auto_parallel", "weight_quantization", "weight_decay_update", "spmd_sharding", "", 7],
)
def test_other_unknown_keys_behave_as_before(context: tf_context.Context, other: object) -> None:
    before = tf.config.optimizer.get_experimental_options()
    tf.config.optimizer.set_experimental_options({other: "anything"})
    assert tf.config.optimizer.get_experimental_options() == before
    assert context._optimizer_experimental_options[other] == "anything"


def test_every_key_said_to_be_valid_is_one_that_tensorflow_acts_on() -> None:
    for key in context_options.TENSORFLOW_KEYS:
        value = 11 if key == "min_graph_nodes" else True
        tf.config.optimizer.set_experimental_options({key: value})
        assert tf.config.optimizer.get_experimental_options()[key] == value
    assert set(tf.config.optimizer.get_experimental_options()) == set(
        context_options.TENSORFLOW_KEYS
    )


def test_pairs_from_an_iterator_are_taken_as_before() -> None:
    tf.config.optimizer.set_experimental_options(
        pair for pair in [(FLAG, True), ("remapping", False)]
    )
    shown = tf.config.optimizer.get_experimental_options()
    assert (shown[FLAG], shown["remapping"]) == (True, False)


def test_installing_twice_wraps_once() -> None:
    for name in ("set_optimizer_experimental_options", "get_optimizer_experimental_options"):
        own = getattr(Context, name)._wu_shard_original
        config.install_flag()
        assert getattr(Context, name)._wu_shard_original is own
        assert not hasattr(own, "_wu_shard_original")


@pytest.mark.usefixtures("plain")
def test_a_flag_set_before_installing_counts() -> None:
    _set(weight_update_sharding=True)
    assert FLAG not in tf.config.optimizer.get_experimental_options()
    config.install_flag()
    assert tf.config.optimizer.get_experimental_options()[FLAG] is True
    assert config.current_options() == ShardingOptions()


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("early", [{FLAG: "yes"}, {"weight_update_shardin": True}])
def test_a_wrong_flag_set_before_installing_raises_and_installs_nothing(
    early: dict[str, object],
) -> None:
    tf.config.optimizer.set_experimental_options(early)
    own = Context.set_optimizer_experimental_options
    with pytest.raises(OptionError):
        config.install_flag()
    assert Context.set_optimizer_experimental_options is own


def test_what_the_getter_gives_is_a_copy_that_can_be_copied_and_set_again() -> None:
    options = ShardingOptions(bucket_bytes=9)
    _set(weight_update_sharding=options)
    shown = copy.deepcopy(tf.config.optimizer.get_experimental_options())
    shown[FLAG] = False
    assert config.current_options() == options
    tf.config.optimizer.set_experimental_options(shown)
    assert config.current_options() is None


def test_a_flag_set_in_one_thread_is_read_in_another() -> None:
    def in_a_thread(work: object) -> None:
        assert callable(work)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    read: list[object] = []
    in_a_thread(lambda: _set(weight_update_sharding=True))
    in_a_thread(lambda: read.append(config.current_options()))
    assert read == [ShardingOptions()] == [config.current_options()]


def test_a_reset_context_starts_without_the_flag_and_knows_it() -> None:
    # In a process of its own, as devices and variables of this one would not survive it.
    script = """
import tensorflow as tf
from tensorflow.python.eager import context
from tf_wu_shard import config
config.install_flag()
put = tf.config.optimizer.set_experimental_options
put({config.FLAG: True})
print(config.current_options() is not None)
context._reset_context()
print(config.current_options())
put({config.FLAG: True})
print(tf.config.optimizer.get_experimental_options()[config.FLAG])
try:
    put({config.FLAG: 3})
except config.OptionError:
    print("refused")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == ["True", "None", "True", "refused"]


def test_a_wrong_value_written_past_the_setter_raises_when_read(
    context: tf_context.Context,
) -> None:
    context._optimizer_experimental_options[FLAG] = "yes"
    with pytest.raises(OptionError):
        config.current_options()
