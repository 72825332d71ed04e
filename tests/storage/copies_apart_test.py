"""Local steps between averages train as without sharding, or say that they cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from absl import logging

import tf_wu_shard
from tests.equivalence.in_process import both, turn_off, turn_on
from tf_wu_shard.errors import StorageError
from tf_wu_shard.storage.copies_apart import why_apart

Strategies = Callable[[int], tf.distribute.MirroredStrategy]

SHAPE = (6, 4)


class Training:
    """Post-local SGD (Lin et al., 2020): synchronous steps, local ones, and averages."""

    def __init__(self, strategy: tf.distribute.MirroredStrategy, *, momentum: bool) -> None:
        self.strategy = strategy
        with strategy.scope():
            start = np.arange(24, dtype=np.float32).reshape(SHAPE) / 8.0
            self.weight = tf.Variable(start, name="weight")
            self.slot = tf.Variable(tf.zeros(SHAPE), trainable=False, name="momentum")
        self._momentum = momentum
        self.rows = strategy.experimental_distribute_values_from_function(
            lambda context: tf.fill([3, 6], 1.0 + context.replica_id_in_sync_group)
        )
        batches = tf.data.Dataset.from_tensor_slices(np.arange(36, dtype=np.float32) / 9.0)
        self.batches = strategy.experimental_distribute_dataset(batches.batch(6).batch(6))
        # Too large to be a constant in what captures it.
        self.batch = tf.reshape(tf.range(180.0) / 90.0, (30, 6))
        self.called = tf.function(self._gradient)
        self.count = tf.Variable(0.0)
        with strategy.scope():
            self.curvature = tf.Variable(tf.ones(SHAPE), trainable=False, name="curvature")
        self.moved = tf.function(lambda own: self._move(self._gradient(own)))
        self.by_rows = tf.function(lambda one, own: one[:3].assign(own[:, 2:]))
        self.applied = tf.function(lambda total: strategy.run(self._move, args=(total,)))
        made = {
            "synchronous": self._synchronous,
            "local": self._local,
            "local in a called function": self._local_in_a_called_function,
            "local epoch": self._local_epoch,
            "local by a called function": self._local_by_a_called_function,
            "local as often as told": self._local_as_often_as_told,
            "local rounds": self._local_rounds,
            "local by its part": self._local_by_its_part,
            "local by its rows": self._local_by_its_rows,
            "local of one replica": self._local_of_one_replica,
            "local by a function of its variable": self._local_by_a_function_of_its_variable,
            "local as counted": self._local_as_counted,
            "by own curvature": self._by_own_curvature,
            "apply": self._apply_in_a_called_function,
            "average": self._average,
            "synchronous by curvature": self._synchronous_by_curvature,
            "own curvature": self._own_curvature,
            "own momentum": self._own_momentum,
            "momentum of curvature": self._momentum_of_curvature,
        }
        self.step: dict[str, Callable[..., Any]] = {n: tf.function(made[n]) for n in made}
        self.step["eager local by hand"] = self._local_by_hand
        self.step["eager local of one replica"] = self._local_of_one_replica

    @property
    def components(self) -> list[tf.Variable]:
        return [*self.weight.values, *self.slot.values]

    def run(self, *names: str) -> list[tf.Variable]:
        """Takes steps, one after the other."""
        for name in names:
            self.step[name](self.rows)
        return self.components

    def _gradient(self, rows: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.tanh(tf.matmul(rows, self.weight)))
        return tape.gradient(loss, self.weight)

    def _move(self, gradient: tf.Tensor) -> None:
        if self._momentum:
            self.slot.assign(0.5 * self.slot + gradient)
            gradient = self.slot.read_value()
        self.weight.assign_sub(0.25 * gradient)

    def _synchronous(self, rows: Any) -> None:
        def step(own: tf.Tensor) -> None:
            context = tf.distribute.get_replica_context()
            self._move(context.all_reduce("sum", self._gradient(own)))

        self.strategy.run(step, args=(rows,))

    def _local(self, rows: Any) -> None:
        self.strategy.run(lambda own: self._move(self._gradient(own)), args=(rows,))

    def _local_in_a_called_function(self, rows: Any) -> None:
        self.strategy.run(lambda own: self._move(self.called(own)), args=(rows,))

    def _local_by_a_called_function(self, rows: Any) -> None:
        self.strategy.run(lambda own: self.moved(own), args=(rows,))

    def _local_as_often_as_told(self, rows: Any) -> None:
        def step(own: tf.Tensor) -> None:
            for _ in tf.range(tf.cast(own[0, 0], tf.int32)):
                self._move(0.125 * tf.ones(SHAPE))

        self.strategy.run(step, args=(rows,))

    def _local_rounds(self, rows: Any) -> None:
        # The rows are handed from one round to the next.
        for _ in tf.range(2):
            self._local(rows)
            rows = self.strategy.run(tf.identity, args=(rows,))

    def _local_by_its_part(self, rows: Any) -> None:
        # One batch is cut in the step, a part for each replica.
        del rows
        parts = tf.split(self.batch, 2)
        self._local(
            self.strategy.experimental_distribute_values_from_function(
                lambda context: parts[context.replica_id_in_sync_group]
            )
        )

    def _local_by_its_rows(self, rows: Any) -> None:
        self.strategy.run(lambda own: self.weight[2:5].assign(own[:, :4]), args=(rows,))

    def _local_by_a_function_of_its_variable(self, rows: Any) -> None:
        self.strategy.extended.update(self.weight, self.by_rows, args=(rows,))

    def _local_by_hand(self, rows: Any) -> None:
        for component, own in zip(self.weight.values, rows.values, strict=True):
            component.assign_sub(tf.reduce_sum(own) / 64.0 * tf.ones(SHAPE))

    def _local_of_one_replica(self, rows: Any) -> None:
        del rows
        self.weight.values[1].assign_sub(tf.ones(SHAPE))

    def _local_as_counted(self, rows: Any) -> None:
        # There is one counter, which the replicas add to in turn.
        del rows

        def step() -> None:
            self.count.assign_add(0.25)
            self._move(self.count * tf.ones(SHAPE))

        self.strategy.run(step)

    def _by_own_curvature(self, rows: Any) -> None:
        def step(own: tf.Tensor) -> None:
            gradient = self._gradient(own)
            self.curvature.assign(0.5 * self.curvature + gradient * gradient)
            total = tf.distribute.get_replica_context().all_reduce("sum", gradient)
            self._move(total / (1.0 + self.curvature))

        self.strategy.run(step, args=(rows,))

    def _apply_in_a_called_function(self, rows: Any) -> None:
        def summed(own: tf.Tensor) -> tf.Tensor:
            context = tf.distribute.get_replica_context()
            return context.all_reduce("sum", self._gradient(own))

        self.applied(self.strategy.run(summed, args=(rows,)))

    def _local_epoch(self, rows: Any) -> None:
        del rows
        for batch in self.batches:
            self._local(batch)

    def _synchronous_by_curvature(self, rows: Any) -> None:
        def step(own: tf.Tensor) -> None:
            context = tf.distribute.get_replica_context()
            total = context.all_reduce("sum", self._gradient(own))
            self.weight.assign_sub(total / (8.0 + self.curvature))

        self.strategy.run(step, args=(rows,))

    def _own_curvature(self, rows: Any) -> None:
        self.strategy.run(lambda own: self.curvature.assign(self._gradient(own)), args=(rows,))

    def _momentum_of_curvature(self, rows: Any) -> None:
        del rows
        self.strategy.run(lambda: self.slot.assign(0.5 * self.curvature))

    def _own_momentum(self, rows: Any) -> None:
        self.strategy.run(lambda own: self.slot.assign(self._gradient(own)), args=(rows,))

    def _average(self, rows: Any) -> None:
        del rows

        def step() -> None:
            context = tf.distribute.get_replica_context()
            self.weight.assign(context.all_reduce("mean", tf.identity(self.weight)))

        self.strategy.run(step)


@pytest.fixture(autouse=True)
def _flag() -> Iterator[None]:
    yield
    turn_off()


@pytest.mark.parametrize(
    ("local", "momentum"),
    [
        ("local", True),
        ("local", False),
        ("local in a called function", True),
        ("local epoch", True),
        ("local by a called function", False),
        ("local as often as told", False),
        ("local rounds", False),
        ("local by its part", True),
        ("local by its rows", True),
        ("local by a function of its variable", False),
        ("local of one replica", False),
        ("local as counted", False),
    ],
)
def test_local_steps_that_come_first_leave_the_update_to_each_replica(
    strategy_of: Strategies, local: str, *, momentum: bool
) -> None:
    made: list[Training] = []

    def trained() -> list[tf.Variable]:
        made.append(Training(strategy_of(2), momentum=momentum))
        return made[-1].run(local, "synchronous", local, "average", "synchronous")

    runs = both(trained)
    assert runs.apart == []
    reasons = [left.reason for report in runs.reports for left in report.left_alone]
    assert reasons and all("local" in reason for reason in reasons)
    assert [str(r) for r in runs.reports if r.variables] == []
    why = why_apart(made[-1].weight)
    assert why is not None and f": _{local.replace(' ', '_')}" in why.reason


@pytest.mark.parametrize("local", ["eager local by hand", "eager local of one replica"])
@pytest.mark.parametrize("is_seen", [True, False])
def test_copies_that_differ_when_the_step_is_traced_are_left_to_each_replica(
    strategy_of: Strategies, local: str, *, is_seen: bool
) -> None:
    """Whatever made them so: here eager code."""
    made: list[Training] = []

    def trained() -> list[tf.Variable]:
        made.append(Training(strategy_of(2), momentum=True))
        before = [local] if is_seen else []
        made[-1].run(*before, "synchronous", "synchronous")
        return made[-1].run(*before, "average", "synchronous")

    runs = both(trained)
    assert runs.apart == []
    verdicts = {r.verdict for r in runs.reports if r.function == "_synchronous"}
    assert verdicts == ({"nothing sharded"} if is_seen else {"sharded"})
    why = why_apart(made[-1].weight)
    assert (why is not None and "the same values on all replicas" in why.reason) is is_seen


def test_so_are_those_that_the_update_only_reads(strategy_of: Strategies) -> None:
    def trained() -> list[tf.Variable]:
        training = Training(strategy_of(2), momentum=False)
        training.curvature.values[1].assign(2.0 * tf.ones(SHAPE))
        return training.run("synchronous by curvature")

    runs = both(trained)
    assert runs.apart == []
    (left,) = (left for report in runs.reports for left in report.left_alone)
    assert "weight is updated with curvature, which does not hold the same" in left.reason


def test_copies_are_compared_as_often_as_a_step_is_traced(strategy_of: Strategies) -> None:
    """Whether an update in shards had made them alike, and whether they differed before."""
    verdicts = ["sharded", "nothing sharded", "sharded"]

    def trained() -> list[tf.Variable]:
        training = Training(strategy_of(2), momentum=False)
        for verdict in verdicts:
            training.weight.assign(training.weight.numpy())
            if verdict != "sharded":
                training.weight.values[1].assign_add(tf.ones(SHAPE))
            tf.function(training._synchronous)(training.rows)
        return training.components

    runs = both(trained)
    assert runs.apart == []
    assert [report.verdict for report in runs.reports] == verdicts


@pytest.mark.parametrize(
    "local",
    ["local", "local in a called function", "local epoch", "local rounds", "local by its part"],
)
def test_a_local_step_that_writes_a_slot_in_shards_is_refused(
    strategy_of: Strategies, local: str
) -> None:
    turn_on()
    training = Training(strategy_of(2), momentum=True)
    training.run("synchronous")
    before = [component.numpy() for component in training.components]
    with pytest.raises(StorageError, match=r"slot 'momentum', which lives in shards.*its own"):
        training.run(local)
    assert all((a == c.numpy()).all() for a, c in zip(before, training.components, strict=True))
    training.run("average", "synchronous")


def test_so_is_one_that_writes_it_with_a_variable_whose_copies_were_moved_apart(
    strategy_of: Strategies,
) -> None:
    turn_on()
    training = Training(strategy_of(2), momentum=True)
    training.run("own curvature", "synchronous")
    with pytest.raises(StorageError, match=r"slot 'momentum', which lives in shards.*its own"):
        training.run("momentum of curvature")


def test_a_weight_whose_update_reads_what_each_replica_has_of_its_own_is_left_to_each(
    strategy_of: Strategies,
) -> None:
    made: list[Training] = []

    def trained() -> list[tf.Variable]:
        made.append(Training(strategy_of(2), momentum=True))
        return made[-1].run("by own curvature", "synchronous", "by own curvature")

    runs = both(trained)
    assert runs.apart == []
    assert [str(r) for r in runs.reports if r.variables] == []
    for variable in (made[-1].curvature, made[-1].weight, made[-1].slot):
        why = why_apart(variable)
        assert why is not None and ": _by_own_curvature writes" in why.reason


def test_a_weight_whose_slot_each_replica_writes_is_moved_apart_by_the_step(
    strategy_of: Strategies,
) -> None:
    made: list[Training] = []

    def trained() -> list[tf.Variable]:
        made.append(Training(strategy_of(2), momentum=True))
        return made[-1].run("own momentum", "synchronous", "own momentum", "synchronous")

    runs = both(trained)
    assert runs.apart == []
    for variable, function in [(made[-1].slot, "_own_momentum"), (made[-1].weight, "_synchronous")]:
        why = why_apart(variable)
        assert why is not None and f": {function} writes" in why.reason


def test_what_a_called_function_applies_was_summed_by_its_caller(strategy_of: Strategies) -> None:
    turn_on()
    training = Training(strategy_of(2), momentum=False)
    training.run("apply", "synchronous", "apply")
    assert why_apart(training.weight) is None
    last = [r for r in tf_wu_shard.reports() if r.function == "_synchronous"][-1]
    assert last.verdict == "sharded"


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is warned of."""
    found: list[str] = []
    monkeypatch.setattr(logging, "warning", lambda text, *values: found.append(text % values))
    return found


def test_a_write_of_what_an_update_in_shards_reads_is_warned_of(
    strategy_of: Strategies, said: list[str]
) -> None:
    turn_on()
    training = Training(strategy_of(2), momentum=False)
    training.run("synchronous by curvature", "own curvature", "synchronous by curvature")
    (warning,) = said
    assert "_own_curvature writes curvature" in warning
    assert "_synchronous_by_curvature, traced before, reads it" in warning


def test_a_local_step_on_a_weight_that_is_updated_in_shards_is_warned_of(
    strategy_of: Strategies, said: list[str]
) -> None:
    turn_on()
    training = Training(strategy_of(2), momentum=False)
    training.run("synchronous", "local")
    (warning,) = said
    assert "_local writes weight weight" in warning and "_synchronous, traced before" in warning
    assert [r.verdict for r in tf_wu_shard.reports() if r.function == "_synchronous"][
        -1
    ] == "sharded"
    training.run("synchronous", "local")
    assert len(said) == 1


def test_steps_that_only_share_what_they_sum_move_nothing_apart(strategy_of: Strategies) -> None:
    turn_on()
    training = Training(strategy_of(2), momentum=True)
    training.run("synchronous", "average", "synchronous")
    assert why_apart(training.weight) is None
