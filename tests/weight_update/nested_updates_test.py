"""An update in a branch is shared there, and the program around hands the branch the shards."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.graph.calls import callees
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView, VariableRef
from tf_wu_shard.grounds.tpu.cluster import Cluster
from tf_wu_shard.grounds.tpu.collectives import TpuCluster
from tf_wu_shard.grounds.tpu.torus import one_group
from tf_wu_shard.layout import AnyLayout
from tf_wu_shard.step.capture import Captured
from tf_wu_shard.storage import captured_slots
from tf_wu_shard.tensorflow_private import function_graph
from tf_wu_shard.weight_update import function_slots
from tf_wu_shard.weight_update.nested_updates import NestedUpdates, share_nested_updates
from tf_wu_shard.weight_update.plan.constraints import StorageConstraints
from tf_wu_shard.weight_update.sharding import Sharding

SHAPE = (64, 256)
HANDLE = tf.TensorSpec((), tf.resource)

# What a branch does with the gradient that each replica has, and the variable w.
Update = Callable[[Any, Any], Any]


def total(own: Any) -> Any:
    return tf.raw_ops.CrossReplicaSum(input=tf.square(own), group_assignment=[[0, 1]])


def sgd(own: Any, handle: Any) -> None:
    tf.raw_ops.AssignSubVariableOp(resource=handle, value=total(own))


def apart(own: Any, handle: Any) -> None:
    tf.raw_ops.AssignSubVariableOp(resource=handle, value=total(own) * own)


def nothing(own: Any, handle: Any) -> None:
    del own, handle


def look(own: Any, handle: Any) -> Any:
    del own
    read = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
    return tf.reduce_sum(tf.ensure_shape(read, SHAPE))


class Traced:
    """A function, all of a program of two replicas, with an update in one of two branches."""

    def __init__(
        self, update: Update, other: Update | None = None, *, second: bool = False
    ) -> None:
        def program(some: Any, own_gradient: Any, handle: Any) -> Any:
            def taken() -> Any:
                update(own_gradient, handle)
                return tf.constant(1.0)

            def left() -> Any:
                return tf.constant(0.0) if other is None else other(own_gradient, handle)

            branches = [left, taken] if second else [taken, left]
            return tf.cond(some, *branches)

        function = tf.function(program, autograph=False)
        specs = tf.TensorSpec((), tf.bool), tf.TensorSpec(SHAPE, tf.float32), HANDLE
        self.graph = function.get_concrete_function(*specs).graph
        self.some, self.gradient, self.handle = (t.op.name for t in self.graph.inputs)
        ref = VariableRef("w", 0, 1, SHAPE, 1, True, "", trainable=True)
        view = GraphView(
            self.graph.as_graph_def(add_shapes=True),
            variables={self.handle: ref},
            outputs=[Value(t.op.name, t.value_index) for t in self.graph.outputs],
            control_outputs=[op.name for op in self.graph.control_outputs],
            op_def=function_graph.op_def,
        )
        self.captured = Captured(view.with_inputs({self.gradient}, {}), {})

    def each_with_a_choice_of_its_own(self) -> Traced:
        """The same, where each replica may take another branch."""
        view = self.captured.view.with_inputs({self.gradient, self.some}, {})
        self.captured = self.captured.with_view(view)
        return self

    def shared(self) -> NestedUpdates:
        """What becomes of its branches."""
        return share_nested_updates(
            self.graph,
            self.captured,
            Cluster("", 2, None),
            lambda program: TpuCluster(program, one_group(2)),
            ShardingOptions(min_elements=1),
        )


@pytest.fixture(autouse=True)
def _storage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing lives in shards, and whatever is planned may."""

    def planned(captured: Captured, sharding: Sharding, known: Any) -> dict[str, Any]:
        return {
            s.variable: SimpleNamespace(layout=s.layout, packed_handle=packed(s.layout))
            for s in sharding.plan.in_shards
        }

    monkeypatch.setattr(captured_slots, "slots_in_shards", lambda captured: {})
    monkeypatch.setattr(function_slots, "storage_constraints", lambda *a: StorageConstraints())
    monkeypatch.setattr(function_slots, "planned_slots", planned)


def packed(layout: AnyLayout) -> Any:
    """A handle of a shard."""
    return tf.Variable(tf.zeros(layout.shard_shape(0))).handle


def test_a_program_without_branches_stays_as_it_is() -> None:
    traced = Traced(nothing)
    found = traced.shared()
    assert found == NestedUpdates(traced.captured) and found.captured is traced.captured


def test_an_update_that_cannot_be_shared_is_reported_and_nothing_is_made() -> None:
    traced = Traced(apart)
    found = traced.shared()
    assert found.captured is traced.captured and found.inputs == () and found.slots == {}
    (report,) = found.reports
    assert [left.name for left in report.left_alone] == ["w"]
    assert report.function.startswith("program/cond_true")


def call_of(found: NestedUpdates) -> Any:
    """The branch op, as it is now."""
    (call,) = (op.node for op in found.captured.view if op.type == "If")
    return call


def graph_of(found: NestedUpdates, attribute: str) -> Any:
    """The graph of a branch, as it is now."""
    (name,) = dict(callees(call_of(found)))[attribute]
    assert name in found.captured.view.functions
    return found.captured.functions[name].graph


def test_a_shared_update_writes_the_shards_that_the_call_hands_over() -> None:
    traced = Traced(sgd)
    found = traced.shared()
    (added,) = found.inputs
    assert added.slot == "w" and found.writers == {"w": ("cond",)}
    assert [*call_of(found).input] == [traced.some, traced.gradient, added.handle]
    assert found.captured.view.ops[added.placeholder].type == "Placeholder"
    (write,) = (op for op in graph_of(found, "then_branch").get_operations() if "Assign" in op.type)
    assert write.type == "AssignSubVariableOp" and write.inputs[1].shape == (32, 256)
    (report,) = found.reports
    assert (report.verdict, report.emitted) == ("sharded", {"reduce_scatter": 1})
    # The graph that was traced is as it was.
    assert [*traced.captured.view.ops["cond"].node.input][2] == traced.handle


def test_a_branch_beside_it_reads_the_same_shards() -> None:
    found = Traced(sgd, look).shared()
    beside = graph_of(found, "else_branch")
    (read,) = (op for op in beside.get_operations() if op.type == "ReadVariableOp")
    assert read.outputs[0].shape == (32, 256)
    (ensured,) = (op for op in beside.get_operations() if op.type == "EnsureShape")
    assert ensured.inputs[0].op is not read and len(found.inputs) == 1


@pytest.mark.parametrize(("second", "least"), [(False, 1.5), (True, 0.5)])
def test_replicas_that_may_disagree_vote_and_skip_the_update_together(
    second: bool, least: float
) -> None:
    found = Traced(sgd, second=second).each_with_a_choice_of_its_own().shared()
    ops = found.captured.view.ops
    decided = ops[call_of(found).input[0]]
    assert decided.type == "Greater"
    needed = ops[decided.inputs[1].op].node.attr["value"].tensor
    # Two for the first branch, or any of them where the update is in the second one.
    assert tf.make_ndarray(needed) == least
    assert found.captured.view.shape(decided.inputs[0]) == ()
    own = graph_of(found, "else_branch" if second else "then_branch")
    assert any(op.type == "AssignSubVariableOp" for op in own.get_operations())
