"""A summary says of each variable what the report says, or what would be."""

from __future__ import annotations

from collections.abc import Callable

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_wu_shard
from tests.estimation.nets import net, trained
from tf_wu_shard.errors import OptionError
from tf_wu_shard.report.quantities import byte_text

k = keras.optimizers


def lines_of(model: keras.Model, *arguments: object, **named: object) -> list[str]:
    """What is printed."""
    found: list[str] = []
    tf_wu_shard.summary(model, *arguments, print_fn=found.append, **named)  # type: ignore[arg-type]
    return found


def line_with(lines: list[str], text: str) -> str:
    (line,) = [line for line in lines if text in line]
    return line


def test_without_a_step_it_says_what_would_be() -> None:
    lines = lines_of(net(), "adam")
    assert lines[0].endswith("8 replicas, as it would be: no step is traced")
    assert "49.9 kB -> 6.53 kB" in line_with(lines, "embeddings")
    assert line_with(lines, "embeddings").endswith("table 130x48/8 pad 288")
    assert "left alone: 80 elements, below" in line_with(lines, "gamma")
    tpu = lines_of(net(), "adam", 2, topology="unknown")
    assert "tiles 6240/2" in line_with(tpu, "embeddings")


@pytest.mark.parametrize("name", ["block 1", "a:b", "größe"])
def test_slots_of_a_layer_stand_with_it_whatever_its_name_holds(name: str) -> None:
    dense = keras.layers.Dense(64, use_bias=False, name=name)
    lines = lines_of(keras.Sequential([keras.Input((64,)), dense]), "adam")
    assert "32.8 kB -> 4.10 kB" in line_with(lines, "  kernel ")
    assert not any("the optimizer's own" in line for line in lines)


def test_slots_of_weights_that_tensorflow_gives_one_name_stand_apart() -> None:
    layers = [keras.layers.Dense(64, use_bias=False, name=name) for name in ("a b", "a:b")]
    lines = lines_of(keras.Sequential([keras.Input((64,)), *layers]), "adam")
    assert [line.split()[-3] for line in lines if line.startswith("  kernel ")] == ["-", "-"]
    assert "the optimizer's own" in lines


def test_nested_layers_stand_under_their_model() -> None:
    lines = [line.split(")")[0] for line in lines_of(net(), "adam")]
    start = lines.index("inner (Sequential")
    assert lines[start + 1] == "  hidden (Dense"
    assert lines[start + 2].startswith("    kernel")


@pytest.mark.parametrize("optimizer", [k.SGD, k.Adam, k.Adafactor])
def test_after_a_step_it_says_what_the_slots_take(
    optimizer: Callable[[], keras.optimizers.Optimizer],
    strategy_of: Callable[[int], tf.distribute.Strategy],
) -> None:
    model, report = trained(strategy_of(2), optimizer)
    lines = lines_of(model)
    assert lines[0].endswith("2 replicas, as the traced step does it")
    assert sum("flat" in line for line in lines) == sum(
        v.layout.startswith("flat") for v in report.variables
    )
    row = tf_wu_shard.estimate(model, optimizer(), 2).rows[0]
    if row.slots.unsharded:
        after = f"{byte_text(row.slots.unsharded)} -> {byte_text(row.slots.sharded)}"
        assert f"Optimizer slots of a replica: {after}" in lines
    else:
        assert "Optimizer slots of a replica: -" in lines


def test_a_tpu_model_is_seen_as_one(emulated: Callable[..., tf.distribute.Strategy]) -> None:
    strategy = emulated(2)
    with strategy.scope():
        model = net()
        model.compile(k.Adam(), "mse")
    before = lines_of(model)
    trained_model, _ = trained(strategy, k.Adam)
    after = lines_of(trained_model)
    assert "as it would be" in before[0]
    assert "as the traced step does it" in after[0]
    assert before[1:] == after[1:]


def test_another_models_report_is_not_taken_for_its_own(
    strategy_of: Callable[[int], tf.distribute.Strategy],
) -> None:
    trained(strategy_of(2), k.Adam)
    other = net()
    other.compile(k.Adam(), "mse")
    assert "as it would be" in lines_of(other)[0]


def test_a_refused_model_of_the_same_names_is_not_taken_for_a_sharded_one(
    strategy_of: Callable[[int], tf.distribute.Strategy],
) -> None:
    strategy = strategy_of(2)

    def of_same_names(min_elements: int) -> keras.Model:
        options = tf_wu_shard.ShardingOptions(min_elements=min_elements)
        tf.config.optimizer.set_experimental_options({"weight_update_sharding": options})
        with strategy.scope():
            dense = keras.layers.Dense(64, name="dense")
            model = keras.Sequential([keras.Input((64,)), dense], name="net")
            model.compile(k.Adam(), "mse")
        model.fit(np.ones((4, 64)), np.ones((4, 64)), verbose=0)
        return model

    sharded, refused = of_same_names(1), of_same_names(10**6)
    assert "flat 4096/2" in line_with(lines_of(sharded), "  kernel ")
    assert "left alone: 4096 elements" in line_with(lines_of(refused), "  kernel ")


class Late(keras.Model):
    """Its weights are made as it is trained, and TensorFlow gives all of them one name."""

    def __init__(self) -> None:
        super().__init__()
        self.first = keras.layers.Dense(64, use_bias=False)
        self.second = keras.layers.Dense(32, use_bias=False)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return self.second(self.first(inputs))


def test_weights_that_share_a_name_are_told_apart(
    strategy_of: Callable[[int], tf.distribute.Strategy],
) -> None:
    tf.config.optimizer.set_experimental_options({"weight_update_sharding": True})
    with strategy_of(2).scope():
        model = Late()
        model.compile(k.Adam(), "mse")
    model.fit(np.ones((4, 64)), np.ones((4, 32)), verbose=0)
    lines = lines_of(model)
    assert lines[0].endswith("2 replicas, as the traced step does it")
    found = [line.split()[-1] for line in lines if line.startswith("  kernel ")]
    assert found == ["4096/2", "2048/2"]


def test_it_only_looks(capsys: pytest.CaptureFixture[str]) -> None:
    model = net()
    model.compile(k.Adam(), "mse")
    before = [np.array(weight) for weight in model.get_weights()]
    tf_wu_shard.summary(model)
    assert capsys.readouterr().out.startswith('Model: "functional')
    assert not model.optimizer.built
    assert tf_wu_shard.reports() == ()
    for one, other in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_frozen_layers_and_shared_ones_are_told() -> None:
    inputs = keras.Input((40,))
    shared = keras.layers.Dense(40, name="shared")
    frozen = keras.layers.Dense(40, name="frozen", trainable=False)
    model = keras.Model(inputs, frozen(shared(shared(inputs))))
    lines = lines_of(model, "adam")
    assert sum("shared (Dense)" in line for line in lines) == 1
    assert sum("not trained" in line for line in lines) == 2


@pytest.mark.parametrize("length", [60, 80, 120])
def test_lines_are_as_long_as_asked(length: int) -> None:
    lines = lines_of(net(), "adam", line_length=length)
    assert max(map(len, lines[1:])) == length


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(OptionError, match="not compiled"):
        tf_wu_shard.summary(net())
    with pytest.raises(OptionError, match="at least 60"):
        tf_wu_shard.summary(net(), "adam", line_length=20)
    with pytest.raises(OptionError, match="at least 2"):
        tf_wu_shard.summary(net(), "adam", 1)
    with pytest.raises(OptionError, match="is not built"):
        tf_wu_shard.summary(keras.Sequential([keras.layers.Dense(2)]), "adam")
