"""Where gradients enter the updates of a step that was traced on one device."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tests.model_files.exported import save
from tf_wu_shard.inspection.answers.answer import FunctionAnswer
from tf_wu_shard.inspection.inspect import inspect
from tf_wu_shard.inspection.steps.grounds import Question
from tf_wu_shard.model_files.read import read_model
from tf_wu_shard.topology import Topology, parse_topology

SIZE = 2048

Step = Callable[[tf.Variable, tf.Variable, Any], None]


class Module(tf.Module):
    """A weight and a slot, and a step that a test writes."""

    def __init__(self, step: Step) -> None:
        super().__init__()
        self.weight = tf.Variable(tf.zeros((SIZE,)), name="weight")
        self.slot = tf.Variable(tf.zeros((SIZE,)), name="slot", trainable=False)
        self._step = step

    @tf.function(input_signature=[tf.TensorSpec((4, SIZE))])
    def train(self, batch: Any) -> None:
        """One step."""
        self._step(self.weight, self.slot, batch)


def answer_to(step: Step, folder: pathlib.Path, topology: Topology | None = None) -> FunctionAnswer:
    """What is said of a step: (weight, slot, batch) in, nothing out."""
    save(Module(step), folder, {})
    question = Question(None if topology else 2, topology=topology, function="train")
    (found,) = inspect(read_model(folder), question).functions
    return found


def gradient_of(weight: tf.Variable, batch: Any) -> Any:
    """A gradient out of a matrix product."""
    return tf.linalg.matvec(batch, tf.linalg.matvec(batch, weight), transpose_a=True)


def sgd(weight: tf.Variable, slot: tf.Variable, batch: Any) -> None:
    weight.assign_sub(0.1 * gradient_of(weight, batch))


def momentum_by_a_value(weight: tf.Variable, slot: tf.Variable, batch: Any) -> None:
    """Writes the same value to slot and weight: it holds the slot's past and is no gradient."""
    moved = 0.9 * slot + 0.1 * gradient_of(weight, batch)
    slot.assign(moved)
    weight.assign_sub(moved)


def momentum_by_a_matrix(weight: tf.Variable, slot: tf.Variable, batch: Any) -> None:
    """Puts an op that no rule names between slot and weight."""
    slot.assign(0.9 * slot + gradient_of(weight, batch))
    weight.assign_sub(tf.cumsum(slot.read_value()))


def adagrad(weight: tf.Variable, slot: tf.Variable, batch: Any) -> None:
    gradient = gradient_of(weight, batch)
    slot.assign_add(gradient * gradient)
    weight.assign_sub(0.1 * gradient / (tf.sqrt(slot) + 1e-6))


@pytest.mark.parametrize(
    ("step", "optimizer", "slots"),
    [
        (sgd, "sgd-like", ()),
        (momentum_by_a_value, "momentum-like", ("slot",)),
        (adagrad, "adagrad-like", ("slot",)),
        (momentum_by_a_matrix, "unknown", ("slot",)),
    ],
)
def test_an_update_by_hand_is_found_with_its_slots(
    tmp_path: pathlib.Path, step: Step, optimizer: str, slots: tuple[str, ...]
) -> None:
    found = answer_to(step, tmp_path)
    (update,) = found.updates
    assert (update.variable, update.optimizer, update.slots) == ("weight", optimizer, slots)
    assert found.assumed == 1 and found.reductions == 0
    assert "no gradient is reduced" in found.verdict


def two_ways(weight: tf.Variable, slot: tf.Variable, batch: Any) -> None:
    """The slot follows another gradient than the weight."""
    slot.assign(0.9 * slot + gradient_of(weight, batch))
    weight.assign_sub(slot * gradient_of(weight, 2 * batch))


def by_the_batch(weight: tf.Variable, slot: tf.Variable, batch: Any) -> None:
    """Scales an update by a number that each replica has of its own."""
    slot.assign(0.9 * slot + gradient_of(weight, batch))
    weight.assign_sub(slot * tf.reduce_mean(batch))


def rows_of(batch: Any) -> Any:
    return tf.cast(batch[0, :2], tf.int32)


def scaled_by_rows(weight: tf.Variable, slot: tf.Variable, batch: Any) -> None:
    """Values that depend on the row numbers that they are written to."""
    rows = rows_of(batch)
    scale = tf.cast(rows, tf.float32)
    weight.scatter_sub(tf.IndexedSlices(batch[1, :2] * scale * batch[2, :2], rows))


def of_two_lists(weight: tf.Variable, slot: tf.Variable, batch: Any) -> None:
    """A slot of other rows than the weight's."""
    slot.scatter_add(tf.IndexedSlices(batch[1, :2], tf.cast(batch[2, :2], tf.int32)))
    weight.scatter_sub(tf.IndexedSlices(batch[1, :2] * tf.gather(slot, [0, 1]), rows_of(batch)))


def of_counts(weight: tf.Variable, slot: tf.Variable, batch: Any) -> None:
    """Integers are no gradient."""
    counts = tf.cast(batch[1, :2], tf.int32)
    rows = rows_of(batch)
    slot.scatter_add(tf.IndexedSlices(tf.cast(counts, tf.float32), rows))
    weight.scatter_sub(tf.IndexedSlices(2.0 * tf.cast(counts, tf.float32), rows))
    weight.assign_sub(slot)


def of_one_number(weight: tf.Variable, slot: tf.Variable, batch: Any) -> None:
    """A number of each replica's own for all entries."""
    number, rows = tf.reduce_sum(batch), rows_of(batch)
    slot.scatter_add(tf.IndexedSlices(tf.fill((2,), number), rows))
    weight.scatter_sub(tf.IndexedSlices(tf.fill((2,), 2.0 * number), rows))
    weight.assign_sub(slot)


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (two_ways, "is no gradient of a weight"),
        (by_the_batch, "is no gradient of a weight"),
        (scaled_by_rows, "enters its update by"),
        (of_two_lists, "enters its update by"),
        (of_counts, "that is of another element type than the weight"),
        (of_one_number, "that is no row of [2048] for each entry"),
    ],
)
def test_what_is_ambiguous_is_said_to_be(tmp_path: pathlib.Path, step: Step, reason: str) -> None:
    found = answer_to(step, tmp_path)
    assert found.trains and not found.updates and found.report is not None
    (left,) = found.report.left_alone
    assert left.name == "weight" and reason in left.reason


def follows(weight: tf.Variable, slot: tf.Variable, batch: Any) -> None:
    slot.assign(0.9 * slot + 0.1 * weight)


def test_an_average_of_a_weight_trains_nothing(tmp_path: pathlib.Path) -> None:
    found = answer_to(follows, tmp_path)
    assert not found.trains and found.writes == 1
    assert found.verdict == "1 variable writes, none of a weight: nothing to shard"


def lazy(weight: tf.Variable, slot: tf.Variable, batch: Any) -> None:
    """Adagrad of the rows that a batch names."""
    rows, values = rows_of(batch), batch[1, :2] * 3.0
    slot.scatter_add(tf.IndexedSlices(tf.square(values), rows))
    root = tf.sqrt(tf.gather(slot.read_value(), rows))
    weight.scatter_sub(tf.IndexedSlices(0.1 * values / (root + 1e-6), rows))


def made_a_tensor(weight: tf.Variable, slot: tf.Variable, batch: Any) -> None:
    """Momentum whose sparse gradient becomes a tensor where it is added."""
    values = tf.math.unsorted_segment_sum(batch[1, :2], rows_of(batch), SIZE)
    slot.assign(0.9 * slot + values)
    weight.assign_sub(0.1 * slot)


def a_tensor_before(weight: tf.Variable, slot: tf.Variable, batch: Any) -> None:
    """Adagrad of a gradient that was made a tensor first: several ops look at it."""
    values = tf.math.unsorted_segment_sum(batch[1, :2], rows_of(batch), SIZE)
    slot.assign_add(values**2)
    weight.assign_sub(0.1 * values / (tf.sqrt(slot) + 1e-6))


def constant_rows(weight: tf.Variable, slot: tf.Variable, batch: Any) -> None:
    """Rows that all replicas look up, as those of positions in a sentence."""
    slot.scatter_add(tf.IndexedSlices(batch[1, :2], tf.range(2)))
    weight.assign_sub(0.1 * slot)


@pytest.mark.parametrize(
    ("step", "optimizer", "layout"),
    [
        (lazy, "adagrad-like", "table 2048x1/2"),
        (made_a_tensor, "momentum-like", "table 2048x1/2"),
        (a_tensor_before, "adagrad-like", "flat 2048/2"),
        (constant_rows, "momentum-like", "table 2048x1/2"),
    ],
)
def test_a_sparse_gradient_is_followed_to_where_rows_and_values_enter(
    tmp_path: pathlib.Path, step: Step, optimizer: str, layout: str
) -> None:
    found = answer_to(step, tmp_path)
    (update,) = found.updates
    assert (update.optimizer, update.slots) == (optimizer, ("slot",)) and found.assumed == 1
    assert found.report is not None
    assert [v.layout for v in found.report.variables] == [layout]


def by_powers(weight: tf.Variable, slot: tf.Variable, batch: Any) -> None:
    """Adagrad by an op that may round some entries otherwise than all."""
    rows, values = rows_of(batch), batch[1, :2] * 3.0
    slot.scatter_add(tf.IndexedSlices(values**2.0, rows))
    weight.scatter_sub(tf.IndexedSlices(values * tf.gather(slot.read_value(), rows), rows))


@pytest.mark.parametrize(
    ("topology", "reason"),
    [
        (None, "Pow of some entries may be rounded otherwise than of all"),
        ("v5e:2x2", "its gradient is sparse here and would be dense on TPUs"),
    ],
)
def test_an_update_of_rows_that_is_refused_says_nothing_of_the_dense_one_on_tpus(
    tmp_path: pathlib.Path, topology: str | None, reason: str
) -> None:
    found = answer_to(by_powers, tmp_path, parse_topology(topology) if topology else None)
    assert found.report is not None and not found.report.variables
    (left,) = found.report.left_alone
    assert left.name == "weight" and reason in left.reason


class LookedUp(tf.Module):
    """A table whose rows are looked up in the variable itself."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = tf.Variable(tf.zeros((SIZE, 4)), name="weight")
        self.slot = tf.Variable(tf.zeros((SIZE, 4)), name="slot", trainable=False)

    @tf.function(input_signature=[tf.TensorSpec((8,), tf.int32)])
    def train(self, ids: Any) -> None:
        """One step."""
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.nn.embedding_lookup(self.weight, ids) ** 2)
        gradient = tape.gradient(loss, self.weight)
        self.slot.assign(0.9 * self.slot)
        self.slot.scatter_add(gradient)
        self.weight.assign_sub(0.1 * self.slot)


def test_looking_rows_up_in_a_variable_writes_nothing(tmp_path: pathlib.Path) -> None:
    save(LookedUp(), tmp_path, {})
    (found,) = inspect(read_model(tmp_path), Question(replicas=2, function="train")).functions
    assert found.report is not None
    (sharded,) = found.report.variables
    assert (sharded.name, sharded.layout, sharded.slots) == ("weight", "table 2048x4/2", ("slot",))


def test_a_table_of_an_unknown_shape_is_said_to_be(tmp_path: pathlib.Path) -> None:
    module = LookedUp()
    graph = module.train.get_concrete_function().graph
    file = tmp_path / "graph.pb"
    file.write_bytes(graph.as_graph_def(add_shapes=True).SerializeToString())
    (found,) = inspect(read_model(file), Question(replicas=2)).functions
    assert found.report is not None and not found.report.variables
    (left,) = found.report.left_alone
    assert left.reason.startswith("the shape of its gradient") and "not known" in left.reason


class TwoTables(tf.Module):
    """Two weights that are updated at the same rows."""

    def __init__(self, apart: bool) -> None:
        super().__init__()
        self.weights = [tf.Variable(tf.zeros((SIZE, 4)), name=name) for name in "ab"]
        self.slots = [tf.Variable(tf.zeros((SIZE, 4)), trainable=False) for _ in "ab"]
        self._apart = apart

    @tf.function(input_signature=[tf.TensorSpec((8,), tf.int32), tf.TensorSpec((8, 4))])
    def train(self, rows: Any, values: Any) -> None:
        """One step."""
        for number, (weight, slot) in enumerate(zip(self.weights, self.slots, strict=True)):
            own = tf.reshape(rows, (-1,)) if self._apart else rows
            slot.scatter_add(tf.IndexedSlices(values * (number + 2.0), own))
            weight.assign_sub(slot)


@pytest.mark.parametrize("apart", [True, False])
def test_entries_of_two_tables_that_one_list_of_rows_names_are_not_told_apart(
    tmp_path: pathlib.Path, apart: bool
) -> None:
    save(TwoTables(apart), tmp_path, {})
    (found,) = inspect(read_model(tmp_path), Question(replicas=2, function="train")).functions
    assert found.report is not None
    if apart:
        assert {v.name for v in found.report.variables} == {"a", "b"}
        return
    assert {v.name for v in found.report.left_alone} == {"a", "b"}
    assert all("another's names its rows by" in v.reason for v in found.report.left_alone)
