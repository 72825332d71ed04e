"""A step's sums become one op that takes part in rounds; what cannot be of a round is refused."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import keras
import pytest
import tensorflow as tf

from tests.graph.text_graph import view_of
from tf_wu_shard.dtypes import FLOAT32, INT32
from tf_wu_shard.errors import WuShardError
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.graph_pass import step_of
from tf_wu_shard.partial_sums.options import FLAG, PartialSums
from tf_wu_shard.partial_sums.rounds import checks, exchange
from tf_wu_shard.partial_sums.rounds.exchange import exchanged, exchanged_by_caller
from tf_wu_shard.partial_sums.steps.sums import sums_of
from tf_wu_shard.reachable import reachable
from tf_wu_shard.rules.writes import WRITES
from tf_wu_shard.step.capture import capture
from tf_wu_shard.step.step import Step
from tf_wu_shard.storage.late_gradients import LISTS
from tf_wu_shard.tensorflow_private.python_calls import EAGER_CALL

GROUP_OF_ONE = 77

ROWS = tf.TensorSpec([None], tf.int32)


class Shared:
    """Rounds that nobody takes part in; what they are asked for is noted."""

    name = "rounds"
    group_of_one = GROUP_OF_ONE

    def __init__(self) -> None:
        self.rounds = types.SimpleNamespace(record=types.SimpleNamespace(summary="none was taken"))
        self.names: list[str] = []
        self.kinds: list[Any] = []
        self.num_dense = 0
        self.alone: Any = None
        self.said_of: list[Any] = []
        self.attached: dict[str, Any] = {}

    def of(
        self,
        cluster: Any,
        weights: Any,
        names: Any,
        options: Any,
        dense: Any,
        lists: Any,
        others: Any,
        places: Any,
    ) -> Shared:
        """In the place of `rounds_of`."""
        self.names, self.num_dense = [*names], len(dense)
        self.kinds = [*dense, *lists, *others]
        return self

    def exchange(self, alone: Any) -> Any:
        """The call by which a step takes part."""
        self.alone = alone
        return types.SimpleNamespace(token="round", types=[dtype for _, dtype in self.kinds])

    def said(self, name: str, shape: Any, dtype: int) -> Any:
        """The call that hands in a value for the next round."""
        self.said_of.append((name, tuple(shape), dtype))
        return types.SimpleNamespace(token="said", types=[dtype])

    def has_batch(self, dtype: int) -> Any:
        """The call that asks whether there is a batch."""
        return types.SimpleNamespace(token="has_batch", types=[dtype])


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Shared:
    """The rounds of whatever step is changed."""
    made = Shared()
    monkeypatch.setattr(exchange, "workers_of", lambda captured: object())
    monkeypatch.setattr(exchange, "rounds_of", made.of)

    def late_gradients_of(variable: Any) -> Any:
        def attach(name: str, source: Any) -> None:
            made.attached[variable.name] = source

        return types.SimpleNamespace(attach=attach)

    monkeypatch.setattr(exchange, "late_gradients_of", late_gradients_of)
    return made


class Model:
    """A weight of two replicas, whose gradient is a hyperbolic tangent."""

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        self.strategy = strategy
        with strategy.scope():
            self.weight = tf.Variable(tf.ones([4]), name="weight")
            self.other = tf.Variable(tf.ones([2]), name="other")

    @property
    def gradient(self) -> tf.Tensor:
        """Of the replica that asks."""
        return tf.tanh(self.weight)

    def step(self, replica: Callable[[], Any]) -> Step:
        """What all replicas do, as it is traced."""

        def step_12() -> Any:
            return self.strategy.run(replica)

        graph = tf.function(step_12, autograph=False).get_concrete_function().graph
        return step_of(graph, capture(graph), None)


@pytest.fixture
def model(strategy_of: Callable[[int], tf.distribute.Strategy]) -> Model:
    """A new one."""
    return Model(strategy_of(2))


def summed(value: Any) -> Any:
    return tf.distribute.get_replica_context().all_reduce("SUM", value)


def in_rounds(step: Step, mode: Any = "majority") -> Step:
    return exchanged(step, sums_of(step), PartialSums(mode=mode))


def calls_in(view: GraphView) -> dict[str, list[Op]]:
    """The ops that call rounds, by their tokens."""
    found: dict[str, list[Op]] = {}
    for op in view:
        if op.type == EAGER_CALL:
            found.setdefault(op.attribute("token").s.decode(), []).append(op)
    return found


def sums_in(view: GraphView) -> list[Op]:
    return [op for op in view if op.type == "CollectiveReduceV2"]


def before(view: GraphView, value: Value) -> set[str]:
    """The types of all ops that a value is computed from, and the results of calls, as round:0."""
    found = set()

    def inputs(one: Value) -> tuple[Value, ...]:
        op = view.producer(one)
        if op.type == EAGER_CALL:
            found.add(f"{op.attribute('token').s.decode()}:{one.index}")
            return ()
        found.add(op.type)
        return op.inputs[one.index : one.index + 1] if op.type == "IdentityN" else op.inputs

    for _ in reachable([value], inputs):
        pass
    return found


def updates(view: GraphView) -> list[set[str]]:
    """What is before each update of a weight."""
    return [before(view, op.inputs[1]) for op in view if op.type == "AssignSubVariableOp"]


def test_a_gradient_and_a_loss_are_exchanged_by_one_op(model: Model, shared: Shared) -> None:
    def replica() -> tf.Tensor:
        loss = tf.reduce_sum(model.weight)
        model.weight.assign_sub(summed(model.gradient))
        return summed(loss)

    done = in_rounds(model.step(replica))
    ((round_,),) = calls_in(done.view).values()
    assert [*round_.attribute("Tout").list.type] == [FLOAT32, FLOAT32]
    assert shared.names == ["weight"] and shared.num_dense == 1
    assert shared.kinds == [((4,), FLOAT32), ((1,), FLOAT32)]
    # Both replicas of this worker hand in what they have together.
    own = [done.view.producer(value) for value in round_.inputs]
    assert [op.type for op in own] == ["AddN", "AddN"]
    assert ["Tanh" in before(done.view, value) for value in own[0].inputs] == [True, True]
    for found in updates(done.view):
        assert "round:0" in found and found.isdisjoint({"Tanh", "CollectiveReduceV2", "round:1"})
    assert len(updates(done.view)) == 2
    for value in done.view.outputs:
        assert "round:1" in before(done.view, value)


def test_nothing_is_summed_but_by_this_worker_alone(model: Model, shared: Shared) -> None:
    def replica() -> None:
        model.weight.assign_sub(summed(model.gradient))

    done = in_rounds(model.step(replica))
    (alive,) = sums_in(done.view)
    assert [done.view.integers(value) for value in alive.inputs[1:3]] == [(1,), (GROUP_OF_ONE,)]
    ((round_,),) = calls_in(done.view).values()
    assert round_.name in alive.controls
    # It raises TensorFlow's error before a weight is written with what is no sum.
    checked = [op for op in done.view if op.type == "EnsureShape" and alive.name in op.controls]
    assert len(checked) == 2
    assert all(done.view.shape(Value(op.name)) == (4,) for op in checked)


def test_what_a_step_does_is_reported_and_it_is_not_sharded(model: Model, shared: Shared) -> None:
    def replica() -> None:
        model.weight.assign_sub(summed(model.gradient))

    step = model.step(replica)
    done = in_rounds(step, "solo")
    said: Any = done.changes[FLAG]
    assert said() == "1 gradient summed in rounds (solo); none was taken"
    assert done.unsharded is not None and "rounds that no step waits for" in str(done.unsharded)
    assert step.unsharded is None and len(sums_in(step.view)) == 2


def test_gradients_of_several_weights_are_counted_and_found_again(
    model: Model, shared: Shared
) -> None:
    def replica() -> None:
        model.weight.assign_sub(summed(model.gradient))
        model.other.assign_sub(summed(tf.tanh(model.other)))

    done = in_rounds(model.step(replica))
    said: Any = done.changes[FLAG]
    assert said().startswith("2 gradients summed in rounds (majority)")
    assert sorted(shared.names) == ["other", "weight"]
    assert {*shared.attached} == {model.weight.name, model.other.name}
    # Each update has its own.
    assert sorted(
        one for found in updates(done.view) for one in found if one.startswith("round")
    ) == ["round:0", "round:0", "round:1", "round:1"]


def test_the_update_runs_alone_with_sums_that_came_too_late(model: Model, shared: Shared) -> None:
    def replica() -> None:
        model.weight.assign_sub(summed(model.gradient))

    in_rounds(model.step(replica))
    shared.alone.update([tf.constant([1.0, 2.0, 3.0, 4.0])])
    assert [own.numpy().tolist() for own in model.weight.values] == [[0.0, -1.0, -2.0, -3.0]] * 2


def test_what_is_made_of_a_sum_is_handed_in_for_the_next_round(
    model: Model, shared: Shared
) -> None:
    def replica() -> tf.Tensor:
        total = summed(tf.reduce_sum(model.weight))
        model.weight.assign_sub(summed(model.gradient))
        return summed(tf.stack([total, total]))

    done = in_rounds(model.step(replica))
    calls = calls_in(done.view)
    assert {token: len(found) for token, found in calls.items()} == {"round": 1, "said": 1}
    ((name, shape, dtype),) = shared.said_of
    assert (shape, dtype) == ((2,), FLOAT32)
    # Each process numbers its graphs by itself; the op has the same name on all.
    graph, _, op = name.partition("/")
    assert graph == "step_" and op.startswith("CollectiveReduceV2")
    for value in done.view.outputs:
        found = before(done.view, value)
        assert "said:0" in found and found.isdisjoint({"round:1", "CollectiveReduceV2"})


def test_such_a_sum_of_another_shape_from_step_to_step_is_refused(
    model: Model, shared: Shared
) -> None:
    def replica() -> tf.Tensor:
        total = summed(tf.reduce_sum(model.weight))
        model.weight.assign_sub(summed(model.gradient))
        return summed(tf.boolean_mask(model.weight, model.weight > total))

    with pytest.raises(WuShardError, match="sums complex numbers, or what has another shape from"):
        in_rounds(model.step(replica))


def test_a_loss_that_is_summed_together_with_gradients_is_refused(
    model: Model, shared: Shared
) -> None:
    def replica() -> tf.Tensor:
        gradient, loss = summed([model.gradient, tf.reduce_sum(model.weight)])
        model.weight.assign_sub(gradient)
        return loss

    said = "is summed together with gradients, which are added up where they are late"
    with pytest.raises(WuShardError, match=said):
        in_rounds(model.step(replica))


def test_a_gradient_that_only_waits_for_another_sum_is_of_another_round(
    model: Model, shared: Shared
) -> None:
    def replica() -> tf.Tensor:
        total = summed(tf.reduce_sum(model.weight))
        with tf.control_dependencies([total]):
            model.weight.assign_sub(summed(tf.tanh(tf.ones([4]))))
        return total

    with pytest.raises(WuShardError, match="follows from another sum of the same step, such as a"):
        in_rounds(model.step(replica))


# With a momentum the rows are made a table, for which it takes its shape.
@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_rows_of_a_table_are_exchanged_as_two_lists_of_open_length(
    model: Model, shared: Shared, momentum: float
) -> None:
    with model.strategy.scope():
        table = tf.Variable(tf.ones([9, 3]), name="table")
        optimizer = keras.optimizers.SGD(1.0, momentum)
        optimizer.build([table])

    def replica(rows: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, rows))
        optimizer.apply_gradients([(tape.gradient(loss, table), table)])

    def step(rows: tf.Tensor) -> None:
        model.strategy.run(replica, (rows,))

    traced = tf.function(step, autograph=False).get_concrete_function(ROWS)
    done = in_rounds(step_of(traced.graph, capture(traced.graph), None))
    assert shared.num_dense == 0
    assert shared.kinds == [((None, 3), FLOAT32), ((None,), INT32)]
    ((round_,),) = calls_in(done.view).values()
    # Both replicas' lists, one after the other.
    assert [done.view.producer(value).type for value in round_.inputs] == ["ConcatV2"] * 2
    gathers = {"CollectiveGatherV2", "If"}
    assert not any(op.type in gathers and op.name in done.view.live for op in done.view)
    writes = [op for op in done.view if op.type in WRITES]
    found = [set[str]().union(*(before(done.view, one) for one in op.inputs)) for op in writes]
    assert sum({"round:0", "round:1"} <= one for one in found) == 2
    checked = [op for op in done.view if op.type == "EnsureShape"]
    shapes = [[dim.size for dim in op.attribute("shape").shape.dim] for op in checked]
    assert sorted(shapes) == [[-1]] * 2 + [[-1, 3]] * 2
    (source,) = shared.attached.values()
    assert [*source.names] == [*LISTS]


def gathered(value: Any) -> Any:
    return tf.distribute.get_replica_context().all_gather(value, 0)


def test_what_is_gathered_waits_for_all_workers(model: Model, shared: Shared) -> None:
    def replica() -> tf.Tensor:
        own = gathered(model.weight)
        model.weight.assign_sub(summed(model.gradient))
        return own

    with pytest.raises(WuShardError, match="waits for all workers, and is no sum"):
        in_rounds(model.step(replica))


def test_behind_sums_is_what_takes_them_or_waits_for_them_and_no_other_sum() -> None:
    view = view_of("""
    x = Placeholder() [4]
    first = CollectiveReduceV2(x, x, x) [4]
    second = CollectiveReduceV2(x, x, x) [4] ^first
    taken = Sqrt(first) [4]
    waits = Sqrt(x) [4] ^second
    later = Sqrt(waits) [4]
    third = CollectiveReduceV2(taken, x, x) [4]
    apart = Sqrt(x) [4]
    """)
    sums = [view.ops[name] for name in ("first", "second")]
    assert exchange._behind(view, sums) == {"taken", "waits", "later", "third"}


@pytest.fixture
def calling(monkeypatch: pytest.MonkeyPatch, shared: Shared) -> list[Shared]:
    """A function calls steps of these rounds, by its ops of the type `Exp`."""
    found = [shared]

    def calls(view: GraphView) -> list[str]:
        return [op.name for op in view if op.type == "Exp"]

    monkeypatch.setattr(exchange, "rounds_called_in", lambda view: found)
    monkeypatch.setattr(exchange, "calls_of_rounds", calls)
    monkeypatch.setattr(checks, "calls_of_rounds", calls)
    return found


def averaging(model: Model) -> Step:
    """A function that sums what its steps return."""
    return model.step(lambda: summed(tf.reduce_sum(tf.exp(model.weight))))


def test_a_function_that_calls_no_steps_stays_as_it_is(model: Model, calling: list[Shared]) -> None:
    calling.clear()
    step = averaging(model)
    assert exchanged_by_caller(step) is step


def test_a_caller_that_sums_nothing_stays_as_it_is(model: Model, calling: list[Shared]) -> None:
    step = model.step(lambda: tf.exp(model.weight))
    assert exchanged_by_caller(step) is step


def test_what_a_caller_sums_is_of_the_round_before(
    model: Model, calling: list[Shared], shared: Shared
) -> None:
    done = exchanged_by_caller(averaging(model))
    assert sums_in(done.view) == [] and {*calls_in(done.view)} == {"said"}
    assert [(shape, dtype) for _, shape, dtype in shared.said_of] == [((1,), FLOAT32)]
    assert done.changes[FLAG] == "1 sums are of the round before"


def test_a_caller_of_several_rounds_does_not_know_which_its_sum_is_of(
    model: Model, calling: list[Shared]
) -> None:
    calling.append(Shared())
    with pytest.raises(WuShardError, match="calls steps of 2 sets of weights: which of their"):
        exchanged_by_caller(averaging(model))


def test_a_caller_that_gathers_waits_for_all_workers(model: Model, calling: list[Shared]) -> None:
    step = model.step(lambda: (gathered(tf.exp(model.weight)), summed(tf.ones([2]))))
    with pytest.raises(WuShardError, match="waits for all workers, and is no sum"):
        exchanged_by_caller(step)


def test_a_caller_hands_no_sum_to_its_steps(model: Model, calling: list[Shared]) -> None:
    step = model.step(lambda: tf.exp(summed(tf.reduce_sum(model.weight))))
    with pytest.raises(WuShardError, match="is handed to a step that is summed in rounds"):
        exchanged_by_caller(step)


def test_a_worker_that_has_a_batch_asks_after_the_steps_before_it(
    model: Model, calling: list[Shared], shared: Shared
) -> None:
    numbers = iter(tf.data.Dataset.range(3))

    def replica() -> tf.Tensor:
        has_batch = numbers.get_next_as_optional().has_value()
        return summed(tf.cast(has_batch, tf.float32))

    def step() -> Any:
        first = tf.exp(tf.constant(1.0))
        with tf.control_dependencies([first]):
            count = model.strategy.run(replica)
        with tf.control_dependencies(model.strategy.experimental_local_results(count)):
            second = tf.exp(tf.constant(2.0))
        model.strategy.run(lambda: model.weight.read_value())
        return count, first, second

    graph = tf.function(step, autograph=False).get_concrete_function().graph
    done = exchanged_by_caller(step_of(graph, capture(graph), None))
    assert sums_in(done.view) == [] and shared.said_of == []
    ((call,),) = calls_in(done.view).values()
    assert call.attribute("token").s == b"has_batch"
    assert [*call.attribute("Tout").list.type] == [FLOAT32]
    first, second = (op.name for op in done.view if op.type == "Exp")
    assert first in call.controls and second not in call.controls
    assert done.changes[FLAG] == "a worker that has a batch asks no other for one"
