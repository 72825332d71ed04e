"""Every op that the pass emits says in its name whose it is and what it does."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_wu_shard
from tests.equivalence.in_process import turn_on
from tests.selection import cases
from tf_wu_shard.graph import builder
from tf_wu_shard.weight_update.rewrite.names import STEPS

k = keras.optimizers

_STEP = "|".join(sorted(STEPS))
SCHEME = re.compile(rf"(.+/)?wu_shard/(constant(_\d+)?|.+/({_STEP})(_\d+)*(/.*)?)")

StrategyOf = Callable[..., tf.distribute.Strategy]


@pytest.fixture
def emitted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The nodes of every builder, which all emitted ops come from."""
    builders: list[Any] = []
    start = builder.GraphBuilder.__init__

    def recording(self: Any, taken: Iterable[str], *arguments: Any) -> None:
        self.names_before = frozenset(taken)
        start(self, self.names_before, *arguments)
        builders.append(self)

    monkeypatch.setattr(builder.GraphBuilder, "__init__", recording)
    return builders


def net() -> keras.Model:
    """A table, equal kernels that form a stack, and biases that fill a bucket."""
    ids = keras.Input((6,), dtype="int32")
    seen = keras.layers.Flatten()(keras.layers.Embedding(130, 48, name="table")(ids))
    for name in "abc":
        seen = keras.layers.Dense(40, name=name)(seen)
    return keras.Model(ids, keras.layers.Dense(3, name="out")(seen))


def train(strategy: tf.distribute.Strategy, optimizer: Any, **options: Any) -> keras.Model:
    """A sharded step, and its weights read and written outside of it."""
    turn_on(**options)
    with strategy.scope():
        model = net()
        model.compile(optimizer(), "mse")
    rows = 2 * strategy.num_replicas_in_sync
    ids = np.arange(6 * rows, dtype=np.int32).reshape(-1, 6) % 130
    model.fit(ids, np.ones((rows, 3)), batch_size=rows, verbose=0)
    return model


def names_of(emitted: list[Any]) -> list[str]:
    """What was emitted; no name is given twice by one builder."""
    found: list[str] = []
    for made in emitted:
        own = [node.name for node in made.nodes]
        assert len(own) == len(set(own))
        found += own
    assert found
    return found


def check(emitted: list[Any], *steps: str) -> None:
    """Nothing but what has an old op's name is outside of the scheme; these steps are there."""
    names = names_of(emitted)
    before = frozenset[str]().union(*(made.names_before for made in emitted))
    assert [name for name in names if not SCHEME.fullmatch(name) and name not in before] == []
    assert not before.isdisjoint(names)
    for step in steps:
        assert any(f"/{step}" in name for name in names), step


IN_PROCESS = {
    "adam": (k.Adam, ("bucket_0/reduce_scatter", "table/embeddings/entries", "a/kernel/update")),
    "norms": (k.Lamb, ("sums_0/all_reduce", "out/kernel/update/part")),
    "owners": (k.Muon, ("a/kernel/reduce", "a/kernel/broadcast", "bucket_0/reduce_scatter")),
    "rows": (k.Adagrad, ("table/embeddings/branch", "table/embeddings/exchange")),
}
ON_TPUS = {
    "adam": (k.Adam, ("bucket_0/reduce_scatter", "bucket_0/all_gather")),
    "norms": (k.Lamb, ("sums_0/all_reduce",)),
    "stacks": (k.Muon, ("matrix_function/input", "matrix_function/result")),
    "branches": (lambda: k.Adam(gradient_accumulation_steps=2), ("bucket_0/reduce_scatter",)),
    "loss scale": (lambda: k.LossScaleOptimizer(k.Adam()), ("cond/agreed",)),
}


@pytest.mark.parametrize("case", cases(IN_PROCESS, {"norms", "rows"}))
def test_in_one_process(case: str, emitted: list[Any], strategy_of: StrategyOf) -> None:
    optimizer, steps = IN_PROCESS[case]
    train(strategy_of(2), optimizer)
    check(emitted, *steps, "shard_1", "assign")


def test_in_the_reference_dialect(emitted: list[Any], strategy_of: StrategyOf) -> None:
    train(strategy_of(2), k.Adam, dialect="reference")
    check(emitted, "a/kernel/reduce_scatter", "a/kernel/update", "a/kernel/all_gather")


def test_small_variables_that_are_left_whole(emitted: list[Any], strategy_of: StrategyOf) -> None:
    train(strategy_of(2), k.Adam, min_elements=500)
    check(emitted, "left_whole/all_reduce", "bucket_0/reduce_scatter")


@pytest.mark.parametrize("case", cases(ON_TPUS, {"branches", "stacks"}))
def test_on_tpus(case: str, emitted: list[Any], emulated: StrategyOf) -> None:
    optimizer, steps = ON_TPUS[case]
    train(emulated(4), optimizer)
    check(emitted, *steps, "shard_0")


@pytest.mark.parametrize("case", cases(["norms", "stacks"], {"norms"}))
def test_on_a_torus(case: str, emitted: list[Any], emulated: StrategyOf) -> None:
    optimizer, steps = ON_TPUS[case]
    train(emulated(4, "v5e:2x2"), optimizer)
    check(emitted, *steps, "shard_0")


def test_what_others_read_and_write(
    emitted: list[Any], strategy_of: StrategyOf, emulated: StrategyOf
) -> None:
    for strategy, shared in ((strategy_of(2), "optimizer"), (emulated(4), "weights")):
        model = train(strategy, k.Adam)
        slots = [v.value for v in model.optimizer.variables if v.shape == (40, 40)]
        whole = slots if shared == "optimizer" else [v.value for v in model.layers[3].weights]

        @tf.function
        def halved(variables: Any = whole) -> tf.Tensor:
            for variable in variables:
                variable.assign(variable * 0.5)
            return tf.add_n([tf.reduce_sum(variable) for variable in variables])

        halved()
    check(emitted, "read", "write")


def test_ops_of_the_user_keep_names_that_the_scheme_gives(
    emitted: list[Any], strategy_of: StrategyOf
) -> None:
    strategy = strategy_of(2)
    turn_on()
    with strategy.scope():
        dense = keras.layers.Dense(8)
        dense.build((None, 40))
        optimizer = k.Adam()
        optimizer.build(dense.trainable_variables)

    def step(rows: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(dense(rows) ** 2)
        gradients = tape.gradient(loss, dense.trainable_variables)
        with tf.name_scope("wu_shard/bucket_0/reduce_scatter/"):
            own = [tf.add(loss, number, name="flat") for number in (1.0, 2.0)]
        optimizer.apply_gradients(zip(gradients, dense.trainable_variables, strict=True))
        return tf.add_n(own)

    train_step = tf.function(lambda rows: strategy.run(step, (rows,)))
    concrete = train_step.get_concrete_function(tf.ones((4, 40)))
    names = [op.name for op in concrete.graph.get_operations()]
    assert len(names) == len(set(names))
    assert tf_wu_shard.reports()[-1].variables
    own = {"wu_shard/bucket_0/reduce_scatter/flat", "wu_shard/bucket_0/reduce_scatter/flat_1"}
    assert own <= set(names)
    assert not own & set(names_of(emitted))
    rows = tf.ones((4, 40))
    loss = tf.reduce_sum(dense(rows) ** 2)
    (first, *_) = strategy.experimental_local_results(train_step(rows))
    np.testing.assert_allclose(float(first), 2 * float(loss) + 3, rtol=1e-5)
