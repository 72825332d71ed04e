"""A MirroredStrategy with a `cross_device_ops` for GPUs: sharded where it can be, or the reason.

No GPU is needed: the graphs of GPUs are those of logical CPU devices under other names.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.equivalence.in_process import Both, both, turn_on
from tests.equivalence.matrix import relative_difference
from tests.equivalence.nested_scenarios import adam
from tests.equivalence.net import Net
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.collective.collectives import Collectives
from tf_wu_shard.grounds.in_process.recognise import replicas_in
from tf_wu_shard.step.capture import capture
from tf_wu_shard.step.replicas import in_process_dialect
from tf_wu_shard.weight_update.analysis.analyze import analyze

Reduction = Callable[[], tf.distribute.CrossDeviceOps]

HIERARCHICAL: dict[str, Reduction] = {
    f"hierarchical, {packs} packs": functools.partial(
        tf.distribute.HierarchicalCopyAllReduce, packs
    )
    for packs in (0, 1, 3)
}
NCCL: dict[str, Reduction] = {
    f"nccl, {packs} packs": functools.partial(tf.distribute.NcclAllReduce, packs)
    for packs in (0, 1, 3)
}
NO_GROUP = "its sums over replicas are no collectives whose group others could join"


def net_of(devices: list[str], reduction: Reduction) -> Net:
    return Net(tf.distribute.MirroredStrategy(devices, reduction()), adam())


def trained(devices: list[str], reduction: Reduction, **options: Any) -> Both:
    """A net after six steps, each replica on examples of its own, without the flag and with it."""

    def train() -> list[Any]:
        net = net_of(devices, reduction)
        net.run(net.train, 6)
        return net.state

    return both(train, **options)


def apart(found: Both) -> float:
    pairs = zip(found.unsharded, found.sharded, strict=True)
    return max(relative_difference(one, other) for one, other in pairs)


def on_gpus(view: GraphView) -> GraphView:
    """The same graph, as its strategy makes it on GPUs."""

    def renamed(device: str) -> str:
        return device.replace("device:CPU:", "device:GPU:")

    graph_def = tf.compat.v1.GraphDef.FromString(view.graph_def.SerializeToString())
    for node in graph_def.node:
        node.device = renamed(node.device)
    refs = {
        name: dataclasses.replace(ref, device=renamed(ref.device))
        for name, ref in view.variables.items()
    }
    return view.with_graph(graph_def).with_variables(refs)


@pytest.mark.parametrize("reduction", HIERARCHICAL.values(), ids=HIERARCHICAL)
def test_hierarchical_copies_are_sharded_bit_for_bit(
    logical_cpus: list[str], reduction: Reduction
) -> None:
    found = trained(logical_cpus[:2], reduction)
    (report,) = found.reports
    assert found.apart == []
    assert [len(report.variables), len(report.left_alone)] == [4, 0]
    assert all("/2" in variable.layout for variable in report.variables)


def test_hierarchical_copies_of_four_replicas_are_sharded(logical_cpus: list[str]) -> None:
    devices = logical_cpus[:4]
    found = trained(devices, tf.distribute.HierarchicalCopyAllReduce)
    one_device = trained(devices, tf.distribute.ReductionToOneDevice)
    pairs = zip(found.unsharded, one_device.unsharded, strict=True)
    # Unsharded, the two differ in nothing but the order of their sums.
    moved = max(relative_difference(one, other) for one, other in pairs)
    assert 0 < apart(found) <= 4 * moved
    (report,) = found.reports
    assert all("/4" in variable.layout for variable in report.variables)


def test_hierarchical_copies_of_three_replicas_lose_a_gradient_and_are_left_alone(
    logical_cpus: list[str],
) -> None:
    strategy = tf.distribute.MirroredStrategy(
        logical_cpus[:3], tf.distribute.HierarchicalCopyAllReduce()
    )

    @tf.function
    def summed() -> Any:
        def replica() -> tf.Tensor:
            number = tf.distribute.get_replica_context().replica_id_in_sync_group
            gradient = tf.cast(10**number, tf.float32) * tf.ones([4])
            return tf.distribute.get_replica_context().all_reduce("SUM", gradient)

        return strategy.experimental_local_results(strategy.run(replica))[0]

    # TensorFlow halves the replicas and forgets the last: not 111.
    np.testing.assert_array_equal(summed(), 11 * np.ones(4))
    found = trained(logical_cpus[:3], tf.distribute.HierarchicalCopyAllReduce)
    (report,) = found.reports
    assert found.apart == [] and report.variables == ()
    assert all("no gradient known to be summed" in left.reason for left in report.left_alone)


@pytest.mark.parametrize("reduction", HIERARCHICAL.values(), ids=HIERARCHICAL)
def test_hierarchical_copies_have_no_group_that_collectives_could_join(
    logical_cpus: list[str], reduction: Reduction
) -> None:
    found = trained(logical_cpus[:2], reduction, dialect="collective")
    (report,) = found.reports
    assert found.apart == [] and report.variables == ()
    assert all(left.reason.startswith(NO_GROUP) for left in report.left_alone)


@pytest.mark.parametrize("reduction", (HIERARCHICAL | NCCL).values(), ids=HIERARCHICAL | NCCL)
def test_on_gpus_the_reason_is_that_they_have_no_group(
    logical_cpus: list[str], reduction: Reduction
) -> None:
    keras.utils.set_random_seed(7)
    net = net_of(logical_cpus[:2], reduction)
    step = tf.function(lambda *own: net.strategy.run(net.train, own))
    given = tf.TensorSpec([8, 24]), tf.TensorSpec([8, 40])
    view = on_gpus(capture(step.get_concrete_function(*given).graph).view)
    dialect = in_process_dialect(replicas_in(view))
    assert type(dialect) is Collectives
    analysis = analyze(view, dialect)
    assert analysis.updates == ()
    assert len(analysis.refused) == len(net.weights)
    assert all(r.refusal.reason.startswith(NO_GROUP) for r in analysis.refused)


def test_sums_that_nccl_would_make_are_sharded_where_it_has_no_kernel(
    logical_cpus: list[str],
) -> None:
    """On CPUs the unmodified step cannot run; the sharded one does what its sums mean."""
    net = net_of(logical_cpus[:2], tf.distribute.NcclAllReduce)
    with pytest.raises(tf.errors.InvalidArgumentError, match="support Op 'NcclAllReduce'"):
        net.run(net.train, 1)
    one_device = trained(logical_cpus[:2], tf.distribute.ReductionToOneDevice)
    turn_on()
    keras.utils.set_random_seed(7)
    net = net_of(logical_cpus[:2], tf.distribute.NcclAllReduce)
    net.run(net.train, 6)
    values = [variable.numpy() for variable in net.state]
    assert [v.tobytes() for v in values] == [v.tobytes() for v in one_device.unsharded]
