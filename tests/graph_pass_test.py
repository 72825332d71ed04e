"""The pass looks at every function, changes those it understands, and is never silent."""

from __future__ import annotations

import dataclasses
import gc
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_wu_shard
from tests.graph.tracing import captured_step, momentum_step, traced, weight_and_slot
from tf_wu_shard import graph_pass
from tf_wu_shard.config import FLAG, ShardingOptions
from tf_wu_shard.errors import NothingShardedError, StorageError
from tf_wu_shard.report.report import Report
from tf_wu_shard.step import swap
from tf_wu_shard.storage.sharded_slot import sharded_slot_of
from tf_wu_shard.tensorflow_private.distributed_variables import original_handle
from tf_wu_shard.weight_update import sharding, stages
from tf_wu_shard.weight_update.analysis import analyze
from tf_wu_shard.weight_update.plan.planner import make_plan

Strategies = Callable[[int], tf.distribute.MirroredStrategy]
ALL = ShardingOptions(min_elements=1)


def set_flag(options: ShardingOptions | bool) -> None:
    tf.config.optimizer.set_experimental_options({FLAG: options})


@pytest.fixture(autouse=True)
def flag() -> Iterator[None]:
    """The flag is on, and off again afterwards; no report of an earlier test is left."""
    tf_wu_shard.clear_reports()
    set_flag(ALL)
    yield
    set_flag(False)


@pytest.fixture
def strategy(logical_cpus: list[str]) -> tf.distribute.MirroredStrategy:
    """Two replicas that sum on one device: their step runs whatever ran in this process before."""
    one_device = tf.distribute.ReductionToOneDevice()
    return tf.distribute.MirroredStrategy(logical_cpus[:2], cross_device_ops=one_device)


def the_report() -> Report:
    (report,) = tf_wu_shard.reports()
    return report


def reasons() -> list[str]:
    return [left.reason for left in the_report().left_alone]


def is_sharded(variable: tf.Variable) -> bool:
    return sharded_slot_of(original_handle(variable.values[0])) is not None


def test_a_step_is_sharded_and_its_slot_with_it(strategy: tf.distribute.Strategy) -> None:
    weight, slot = weight_and_slot(strategy)
    traced(strategy, momentum_step(weight, slot))
    report = the_report()
    assert report.verdict == "sharded"
    assert report.emitted == {"reduce_scatter": 1, "all_gather": 1}
    assert [(v.name, v.slots) for v in report.variables] == [("weight", ("momentum",))]
    assert 0 < report.pass_ms <= report.trace_ms
    assert is_sharded(slot)
    assert not is_sharded(weight)


def test_what_is_captured_under_control_dependencies_is_an_input_like_others(
    strategy_of: Strategies,
) -> None:
    """Such as the token that orders the collectives."""
    strategy = strategy_of(2)
    with strategy.scope():
        weight = tf.Variable(tf.ones((5, 7)))
        optimizer = tf.keras.optimizers.Adam()
        optimizer.build([weight])

    def step(_: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(weight**2)
        gradient = tape.gradient(loss, weight)
        with tf.control_dependencies([tf.debugging.check_numerics(gradient, "not finite")]):
            optimizer.apply_gradients([(gradient, weight)])
        return loss

    traced(strategy, step)
    assert the_report().verdict == "sharded", str(the_report())


def test_collectives_of_the_default_strategy_are_sharded_too(strategy_of: Strategies) -> None:
    default = strategy_of(2)
    graph = traced(default, momentum_step(*weight_and_slot(default)))
    assert the_report().emitted == {"reduce_scatter": 1, "all_gather": 1}
    assert not [op for op in graph.get_operations() if op.type.startswith("Collective")]


def test_a_rewritten_function_holds_nothing_more_to_shard(
    strategy: tf.distribute.Strategy,
) -> None:
    graph = traced(strategy, momentum_step(*weight_and_slot(strategy)))
    assert graph_pass.process(graph, 0.0) is graph


def test_the_flag_off_leaves_a_function_and_says_nothing(strategy: tf.distribute.Strategy) -> None:
    set_flag(False)
    weight, slot = weight_and_slot(strategy)
    traced(strategy, momentum_step(weight, slot))
    assert tf_wu_shard.reports() == ()
    assert not is_sharded(slot)


def test_registering_twice_changes_nothing(strategy: tf.distribute.Strategy) -> None:
    graph_pass.register()
    traced(strategy, momentum_step(*weight_and_slot(strategy)))
    assert the_report().verdict == "sharded"


def noisy_sums(gradient: tf.Tensor) -> tf.Tensor:
    """What neither shards nor one replica alone can compute for all."""
    return tf.cumsum(gradient) * tf.random.uniform(())


def choice_of_rows(gradient: tf.Tensor) -> tf.Tensor:
    """An op with a rule that does not hold of it: the condition has an element a row."""
    of_rows = tf.range(gradient.shape[0]) > 1
    return tf.raw_ops.Select(condition=of_rows, x=gradient, y=-gradient)


Change = Callable[[tf.Tensor], tf.Tensor]
REFUSED: dict[str, tuple[Change, str]] = {
    "an op without a rule": (noisy_sums, "no rule for Cumsum; nor can one replica do it alone: "),
    "random numbers": (
        lambda g: g + tf.random.uniform(g.shape),
        "each replica runs a RandomUniform of its own",
    ),
}


@pytest.mark.parametrize("change", REFUSED)
def test_an_update_that_no_replica_can_do_for_the_others_is_refused(
    strategy: tf.distribute.Strategy, change: str
) -> None:
    function, reason = REFUSED[change]
    weight, slot = weight_and_slot(strategy)
    traced(strategy, momentum_step(weight, slot, change=function))
    assert the_report().verdict == "nothing sharded"
    assert [r.startswith(reason) for r in reasons()] == [True], reasons()
    assert not is_sharded(slot)


@pytest.mark.parametrize("change", [tf.cumsum, choice_of_rows])
def test_an_op_without_a_rule_is_left_to_one_replica(
    strategy: tf.distribute.Strategy, change: Change
) -> None:
    weight, slot = weight_and_slot(strategy)
    traced(strategy, momentum_step(weight, slot, change=change))
    assert [v.layout for v in the_report().variables] == ["owner replica 0"]
    assert is_sharded(slot)


def test_constants_that_differ_between_replicas_are_refused(
    strategy: tf.distribute.Strategy,
) -> None:
    weight, slot = weight_and_slot(strategy)
    factors = iter([2.0, 3.0])
    traced(strategy, momentum_step(weight, slot, change=lambda g: g * next(factors)))
    assert len(reasons()) == 1
    assert reasons()[0].startswith("it differs from replica 0's")


def test_an_untrainable_weight_is_refused(strategy: tf.distribute.Strategy) -> None:
    _, slot = weight_and_slot(strategy)
    _, weight = weight_and_slot(strategy)
    traced(strategy, momentum_step(weight, slot))
    assert reasons() == ["its update reaches no trainable variable"]


def test_a_small_variable_is_left_alone(strategy: tf.distribute.Strategy) -> None:
    set_flag(True)
    traced(strategy, momentum_step(*weight_and_slot(strategy)))
    assert reasons() == ["35 elements, below min_elements=1024"]


def test_a_slot_that_an_earlier_function_captured_stays_whole(
    strategy: tf.distribute.Strategy,
) -> None:
    weight, slot = weight_and_slot(strategy)
    earlier = tf.function(lambda: tf.reduce_sum(slot), autograph=False)
    earlier.get_concrete_function()
    traced(strategy, momentum_step(weight, slot))
    (reason,) = reasons()
    assert reason.startswith("its slot momentum is captured by ")
    assert reason.endswith(", traced before")
    assert not is_sharded(slot)


def applied_by(function: Callable[..., Any], weight: tf.Variable) -> Callable[..., Any]:
    """What a replica does: it sums the weight's gradient, and hands that to a function."""

    def replica(number: tf.Tensor) -> None:
        del number
        function(tf.distribute.get_replica_context().all_reduce("SUM", weight * 2.0))

    return replica


@pytest.mark.parametrize("in_shards", [False, True])
@pytest.mark.parametrize("in_a_branch", [False, True])
def test_a_function_that_the_step_alone_calls_is_no_other_that_captured_its_slot(
    strategy: tf.distribute.Strategy, in_a_branch: bool, in_shards: bool
) -> None:
    weight, slot = weight_and_slot(strategy)

    def update(gradient: tf.Tensor) -> tf.Tensor:
        return weight.assign_sub(slot.assign(slot + gradient))

    def in_branch(gradient: tf.Tensor) -> tf.Tensor:
        finite = tf.reduce_all(tf.math.is_finite(gradient))
        return tf.cond(finite, lambda: update(gradient), lambda: weight + 0.0)

    apply = tf.function(in_branch if in_a_branch else update, autograph=False)
    if in_shards:
        traced(strategy, momentum_step(weight, slot))
        assert is_sharded(slot)
    traced(strategy, applied_by(apply, weight))
    assert tf_wu_shard.reports()[-1].verdict == "sharded" and is_sharded(slot)
    # By now it has been traced for others to call; so has the one that calls it.
    traced(strategy, applied_by(apply, weight))
    assert tf_wu_shard.reports()[-1].verdict == "sharded"


def test_a_function_that_was_called_by_itself_first_keeps_its_slot_whole(
    strategy: tf.distribute.Strategy,
) -> None:
    weight, slot = weight_and_slot(strategy)
    apply = tf.function(lambda g: weight.assign_sub(slot.assign(slot + g)), autograph=False)
    strategy.run(lambda: apply.get_concrete_function(tf.TensorSpec((5, 7))))
    traced(strategy, applied_by(apply, weight))
    assert not is_sharded(slot)
    assert any("is captured by" in reason for reason in reasons())


def test_a_function_that_is_called_by_itself_later_is_traced_anew(
    strategy: tf.distribute.Strategy,
) -> None:
    """Its trace has the storage that the slot had; what is left there is no number."""
    weight, slot = weight_and_slot(strategy)

    apply = tf.function(lambda g: weight.assign_sub(slot.assign(slot + g)), autograph=False)
    traced(strategy, applied_by(apply, weight))
    assert is_sharded(slot)
    with pytest.raises(StorageError, match="only some replicas' components"):
        strategy.run(lambda: apply(tf.ones((5, 7))))
    assert np.all(slot.numpy() == 0.0) and np.all(weight.numpy() == 1.0)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_called_function_writes_a_slot_in_shards_where_the_flag_is_off_again(
    strategy: tf.distribute.Strategy, jit_compile: bool
) -> None:
    weight, slot = weight_and_slot(strategy)
    traced(strategy, momentum_step(weight, slot))
    set_flag(False)

    def update(gradient: tf.Tensor) -> None:
        weight.assign_sub(slot.assign(slot + gradient))

    apply = tf.function(update, autograph=False, jit_compile=jit_compile)
    replica = applied_by(apply, weight)
    tf.function(lambda: strategy.run(replica, args=(0,)), autograph=False)()
    # The gradient is 2, on each of two replicas.
    assert is_sharded(slot) and np.all(slot.numpy() == 4.0)
    assert all(np.all(copy.numpy() == -3.0) for copy in weight.values)


def test_what_a_function_does_to_a_slot_in_shards_is_an_error_of_whoever_calls_it(
    strategy: tf.distribute.Strategy,
) -> None:
    weight, slot = weight_and_slot(strategy)
    traced(strategy, momentum_step(weight, slot))
    apply = tf.function(lambda g: slot.assign(slot + g), autograph=False)

    def replica(number: tf.Tensor) -> None:
        apply(tf.cast(number, tf.float32) * weight)

    with pytest.raises(StorageError, match="of its own"):
        traced(strategy, replica)


def test_nothing_is_added_to_the_function_around_a_step(strategy: tf.distribute.Strategy) -> None:
    """A distributed variable is read, in a strategy's scope, when it is asked what it lacks."""
    added = []
    for options in (False, ALL):
        set_flag(options)
        weight, slot = weight_and_slot(strategy)
        one = momentum_step(weight, slot)
        step = tf.function(lambda one=one: strategy.run(one, args=(0,)), autograph=False)
        with strategy.scope():
            graph = tf.function(step, autograph=False).get_concrete_function().graph
        added.append([op.type for op in graph.get_operations() if op.type != "Placeholder"])
    assert added[0] == added[1] and is_sharded(slot)


def test_a_captured_slot_is_sharded_once_that_function_is_gone(
    strategy: tf.distribute.Strategy,
) -> None:
    weight, slot = weight_and_slot(strategy)
    earlier = tf.function(lambda: tf.reduce_sum(slot), autograph=False)
    earlier.get_concrete_function()
    del earlier
    gc.collect()
    traced(strategy, momentum_step(weight, slot))
    assert the_report().verdict == "sharded"


def test_a_step_on_one_replica_says_that_there_is_nothing_to_share() -> None:
    weight = tf.Variable([1.0, 2.0])
    # A decay alone is no training; behind an update there is a layer.
    tf.function(lambda: weight.assign_sub(weight * 0.1)).get_concrete_function()
    assert tf_wu_shard.reports() == ()
    tf.function(lambda: weight.assign_sub(tf.cumsum(weight))).get_concrete_function()
    assert reasons() == ["it trains on one replica: no gradient is reduced"]


def test_under_strategies_whose_variables_exist_once_nothing_is_replicated(
    strategy: tf.distribute.Strategy,
) -> None:
    central = tf.distribute.experimental.CentralStorageStrategy(
        compute_devices=list(strategy.extended.worker_devices), parameter_device="CPU:0"
    )
    assert central.num_replicas_in_sync == strategy.num_replicas_in_sync
    with central.scope():
        weight = tf.Variable(tf.ones((8, 8)), aggregation=tf.VariableAggregation.SUM)

        def step(_: Any) -> None:
            weight.assign_sub(tf.matmul(weight, weight))

        captured_step(central, step)
    assert reasons() == [
        "under CentralStorageStrategy every variable exists once; nothing is replicated"
    ]


def test_a_function_that_trains_nothing_is_not_reported(strategy: tf.distribute.Strategy) -> None:
    weight, _ = weight_and_slot(strategy)
    captured_step(strategy, lambda _: tf.reduce_sum(weight))
    tf.function(lambda: tf.constant(1.0)).get_concrete_function()
    assert tf_wu_shard.reports() == ()


@pytest.mark.parametrize("on_replicas", [False, True])
def test_nor_is_one_that_initialises_a_weight_in_a_branch(
    strategy: tf.distribute.Strategy, on_replicas: bool
) -> None:
    weight, slot = weight_and_slot(strategy)

    def initialise() -> tf.Tensor:
        return weight.assign(tf.math.l2_normalize(slot + 1.0))

    def body() -> tf.Tensor:
        return tf.cond(tf.reduce_sum(slot) > 0.0, initialise, lambda: weight + 0.0)

    step = (lambda: strategy.run(body)) if on_replicas else body
    tf.function(step, autograph=False).get_concrete_function()
    assert tf_wu_shard.reports() == ()


def test_an_update_that_sums_by_itself_in_a_branch_is_told_of(
    strategy: tf.distribute.Strategy,
) -> None:
    """By adding up what the replicas have: no reduction that is known, but no initialisation."""
    weight, _ = weight_and_slot(strategy)

    @tf.function(autograph=False)
    def step(rows: tf.Tensor) -> tf.Tensor:
        def update() -> tf.Tensor:
            own = strategy.experimental_local_results(strategy.run(lambda: weight * rows))
            total = tf.add_n([tf.cumsum(one) for one in own])
            strategy.extended.update(weight, lambda one: one.assign_sub(0.1 * total))
            return tf.reduce_sum(total)

        return tf.cond(tf.reduce_sum(rows) > 0.0, update, lambda: 0.0)

    step.get_concrete_function(tf.TensorSpec(weight.shape))
    assert the_report().verdict == "nothing sharded" and reasons()


def test_who_follows_a_weight_that_a_branch_updates_is_not_told_of(
    strategy: tf.distribute.Strategy,
) -> None:
    """A teacher, trainable as Keras makes it: neither by the step nor by who calls that."""
    weight, slot = weight_and_slot(strategy)
    with strategy.scope():
        teacher = tf.Variable(tf.zeros(weight.shape), name="teacher")

    def train() -> tf.Tensor:
        with tf.GradientTape() as tape:
            half = tf.cast(weight, tf.float16)
            loss = tf.cast(tf.reduce_sum((tf.ones((3, 5), half.dtype) @ half) ** 2), tf.float32)
        context = tf.distribute.get_replica_context()
        slot.assign(0.9 * slot + context.all_reduce("SUM", tape.gradient(loss, weight)))
        weight.assign_sub(0.1 * slot)
        return loss

    @tf.function(autograph=False)
    def step(really: tf.Tensor) -> tf.Tensor:
        def run() -> tf.Tensor:
            return strategy.experimental_local_results(strategy.run(train))[0]

        def follow() -> None:
            teacher.assign(0.9 * teacher + 0.1 * weight)

        loss = tf.cond(really, run, lambda: tf.constant(0.0))
        with tf.control_dependencies([loss]):
            strategy.run(follow)
        return strategy.reduce("SUM", strategy.run(lambda: tf.reduce_sum(teacher)), axis=None)

    around = tf.function(lambda really: step(really) + 1.0, autograph=False)
    around.get_concrete_function(tf.TensorSpec((), tf.bool))
    (report,) = tf_wu_shard.reports()
    assert report.verdict == "sharded" and report.function.startswith("step/cond_true_")
    assert not report.left_alone


def test_a_step_adds_no_report_of_a_weight_that_its_branch_reports(
    strategy: tf.distribute.Strategy,
) -> None:
    """Though the branch is handed what was computed with the step's own reduced gradient."""
    one, other = weight_and_slot(strategy), weight_and_slot(strategy)

    def train(weight: Any, slot: Any, factor: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((weight * factor) ** 2)
        context = tf.distribute.get_replica_context()
        gradient = context.all_reduce("SUM", tape.gradient(loss, weight))
        slot.assign(0.9 * slot + gradient)
        weight.assign_sub(0.1 * slot)
        return tf.reduce_sum(tf.cumsum(gradient))

    @tf.function(autograph=False)
    def step(both: tf.Tensor) -> tf.Tensor:
        seen = strategy.run(train, (*one, tf.constant(1.0)))
        seen = strategy.experimental_local_results(seen)[0]
        return tf.cond(both, lambda: second(seen), lambda: seen)

    def second(seen: tf.Tensor) -> tf.Tensor:
        return strategy.experimental_local_results(strategy.run(train, (*other, seen)))[0]

    step.get_concrete_function(tf.TensorSpec((), tf.bool))
    branch, around = tf_wu_shard.reports()
    assert [report.verdict for report in (branch, around)] == ["sharded", "sharded"]
    assert not branch.left_alone and not around.left_alone


def test_an_update_inside_a_branch_is_sharded_there_and_named_after_it(
    strategy: tf.distribute.Strategy,
) -> None:
    weight, slot = weight_and_slot(strategy)
    train = momentum_step(weight, slot)

    @tf.function(autograph=False)
    def step(really: tf.Tensor) -> tf.Tensor:
        def run() -> tf.Tensor:
            losses = strategy.run(lambda: train(tf.constant(0)))
            return strategy.experimental_local_results(losses)[0]

        return tf.cond(really, run, lambda: tf.constant(0.0))

    before = weight.numpy()
    step(tf.constant(False))
    np.testing.assert_array_equal(weight.numpy(), before)
    step(tf.constant(True))
    assert (weight.numpy() != before).any()
    (report,) = tf_wu_shard.reports()
    assert report.verdict == "sharded" and report.function.startswith("step/cond_true_")
    assert is_sharded(slot)


def test_nothing_sharded_is_an_error_on_demand(strategy: tf.distribute.Strategy) -> None:
    set_flag(dataclasses.replace(ALL, on_refusal="raise"))
    weight, slot = weight_and_slot(strategy)
    with pytest.raises(NothingShardedError, match="no rule for Cumsum"):
        traced(strategy, momentum_step(weight, slot, change=noisy_sums))


def test_nothing_sharded_is_a_warning_otherwise(
    strategy: tf.distribute.Strategy, caplog: pytest.LogCaptureFixture
) -> None:
    weight, slot = weight_and_slot(strategy)
    with caplog.at_level("WARNING", logger="absl"):
        traced(strategy, momentum_step(weight, slot, change=noisy_sums))
    assert "weight_update_sharding is on, but step: nothing sharded" in caplog.text
    assert re.search(r"\(at \S+, \w+\.py:\d+ in \w+\); lifted by an update without", caplog.text)


@pytest.mark.parametrize(
    ("module", "stage"),
    [
        (graph_pass, "capture"),
        (stages, "analyze"),
        (analyze, "verify_updates"),
        *((sharding, name) for name in ("make_plan", "verify_plan", "rewrite", "verify")),
        (swap, "rebuild"),
    ],
    ids=lambda part: getattr(part, "__name__", part),
)
def test_a_stage_that_fails_leaves_the_function_as_it_was_traced(
    strategy: tf.distribute.Strategy, monkeypatch: pytest.MonkeyPatch, module: Any, stage: str
) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError(f"{stage} is broken")

    monkeypatch.setattr(module, stage, fail)
    weight, slot = weight_and_slot(strategy)
    graph = traced(strategy, momentum_step(weight, slot))
    assert reasons() == [f"the pass failed and left the function as it was: {stage} is broken"]
    assert not is_sharded(slot)
    assert "AddN" in {op.type for op in graph.get_operations()}
    assert not [op for op in graph.get_operations() if op.name.startswith("wu_shard")]


def test_a_broken_plan_is_caught_before_anything_is_rewritten(
    strategy: tf.distribute.Strategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_a_gap(*arguments: Any) -> Any:
        plan = make_plan(*arguments)
        moved = (dataclasses.replace(v, bucket=v.bucket + 1) for v in plan.variables)
        return dataclasses.replace(plan, variables=tuple(moved))

    monkeypatch.setattr(sharding, "make_plan", with_a_gap)
    weight, slot = weight_and_slot(strategy)
    graph = traced(strategy, momentum_step(weight, slot))
    (reason,) = reasons()
    assert reason.endswith("left the function as it was: the buckets of the plan are numbered [1]")
    assert "AddN" in {op.type for op in graph.get_operations()} and not is_sharded(slot)


def test_the_reference_dialect_is_used_when_asked_for(strategy: tf.distribute.Strategy) -> None:
    set_flag(dataclasses.replace(ALL, dialect="reference"))
    weight, slot = weight_and_slot(strategy)
    traced(strategy, momentum_step(weight, slot))
    assert the_report().verdict == "sharded"


def test_reports_are_kept_in_order_and_forgotten_on_demand(
    strategy: tf.distribute.Strategy,
) -> None:
    traced(strategy, momentum_step(*weight_and_slot(strategy)))
    traced(strategy, momentum_step(*weight_and_slot(strategy), change=noisy_sums))
    assert [r.verdict for r in tf_wu_shard.reports()] == ["sharded", "nothing sharded"]
    tf_wu_shard.clear_reports()
    assert tf_wu_shard.reports() == ()


def test_sharded_and_whole_steps_train_alike(strategy: tf.distribute.Strategy) -> None:
    trained = []
    for options in (ALL, False):
        set_flag(options)
        weight, slot = weight_and_slot(strategy)
        train = momentum_step(weight, slot)
        step = tf.function(
            lambda train=train: strategy.run(lambda: train(tf.constant(0))), autograph=False
        )
        for _ in range(2):
            step()
        trained.append((weight.numpy(), slot.numpy()))
    (one_weight, one_slot), (other_weight, other_slot) = trained
    assert one_weight.tobytes() == other_weight.tobytes()
    assert one_slot.tobytes() == other_slot.tobytes()
    assert not np.array_equal(one_weight, np.ones((5, 7)))
