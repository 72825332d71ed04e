"""Weights are put together once they are written, or where they are read, as many as can be."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import tensorflow as tf

from tests.weight_update.rewrite.raw_steps import DEVICES, Copy, RawStep, Replica, dense_step
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.dtypes import BFLOAT16, FLOAT32
from tf_wu_shard.graph.builder import Emitter
from tf_wu_shard.graph.op import Value
from tf_wu_shard.grounds.in_process.collectives import InProcess
from tf_wu_shard.layout import Layout
from tf_wu_shard.preferences import Preferences
from tf_wu_shard.replicas import in_this_process
from tf_wu_shard.weight_update.plan.planner import make_plan
from tf_wu_shard.weight_update.plan.types import SlotPlan
from tf_wu_shard.weight_update.rewrite.body_emitter import BodyEmitter
from tf_wu_shard.weight_update.rewrite.schedule import CollectiveSchedule
from tf_wu_shard.weight_update.rewrite.weight_gathers import WeightGathers


class Noting(InProcess):
    """Notes what is put together, and yields one op for each whole tensor."""

    def __init__(self) -> None:
        super().__init__(in_this_process(DEVICES))
        self.gathered: list[tuple[str, list[list[Value]]]] = []

    def all_gather(
        self, at: Emitter, shards: Sequence[Sequence[Value]], layouts: Sequence[Layout]
    ) -> list[list[Value]]:
        self.gathered.append((at.scope, [[*own] for own in shards]))
        assert len(layouts) == len(shards)
        return [
            [at.on(d).op("Identity", [v], "whole") for v, d in zip(own, DEVICES, strict=False)]
            for own in shards
        ]


class Gathering:
    """A step whose one update is planned and emitted, and what puts its weights together."""

    def __init__(
        self, replica: Replica, shapes: Mapping[str, tuple[int, ...]], **given: Any
    ) -> None:
        self.step: RawStep = dense_step(replica, shapes, **given)
        self.dialect = Noting()
        self.replaced: dict[Any, Any] = {}
        edit: Any = SimpleNamespace(
            replace_ops=self.replaced.update, replace_value=self.replaced.__setitem__
        )
        self.emission = dataclasses.replace(self.step.emission, dialect=self.dialect, edit=edit)
        analysis = self.step.analysis
        plan = make_plan(analysis, ShardingOptions(), Preferences(1, 9999))
        (self.variable,) = plan.variables
        self.emitters: list[BodyEmitter] = []
        schedule = CollectiveSchedule(self.step.view, plan)
        self.gathers = WeightGathers(self.emission, schedule)

    def put_together(self) -> dict[str, tuple[tuple[str, ...], ...]]:
        """Emits the update and puts its weights together; by weight and replica, what writes it."""
        update, shards = self.variable.update, {0: self.step.of_each("shard")}
        for replica in range(2):
            emitter = BodyEmitter(self.emission, update, self.variable.layouts, replica, shards)
            for op in emitter.update.body:
                emitter.emit_op(op)
            self.emitters.append(emitter)
        members = [(self.variable, self.emitters, weight) for weight in update.weights]
        self.gathers.put_together(members)
        return self.gathers.assigns

    def serve_reads(self, gather_dtype: int = FLOAT32) -> None:
        """Serves the reads of the weight, which lives in shards."""
        self.step.with_shards_of("w")
        weight = SlotPlan("w", self.variable.layout, FLOAT32)
        held = dataclasses.replace(
            self.variable, sharded_weights=(weight,), gather_dtype=gather_dtype
        )
        self.gathers.serve_reads([held])


def stepped(copy: Copy) -> None:
    copy.write("AssignSub", "w", copy.total, "step")


def both(copy: Copy) -> None:
    stepped(copy)
    flat = tf.reshape(copy.total, [20], copy.named("flat"))
    copy.write("AssignSub", "v", flat, "other")


def seen_between(copy: Copy) -> None:
    first = copy.write("AssignSub", "w", copy.total, "first")
    look = copy.read("w", "look", after=[first])
    tf.raw_ops.Print(input=look, data=[], name=copy.named("kept"))
    copy.write("AssignSub", "w", copy.total, "second", after=[look])


def read_late(copy: Copy) -> None:
    step = copy.write("AssignSub", "w", copy.total, "step")
    late = copy.read("w", "late", after=[step])
    tf.negative(late, copy.named("shown"))


def test_a_weight_is_assigned_on_each_replica_what_its_shards_make_up() -> None:
    made = Gathering(stepped, {"w": (5, 4)})
    assigns = made.put_together()
    ((scope, (shards,)),) = made.dialect.gathered
    assert scope == "wu_shard/w/all_gather" and made.gathers.count == 1
    versions = [emitter.versions["w"][0] for emitter in made.emitters]
    assert shards == [version.shard for version in versions]
    for replica, (name,) in enumerate(assigns["w"]):
        node = made.step.new[name]
        assert (node.op, node.device) == ("AssignVariableOp", DEVICES[replica])
        handle, whole, *controls = node.input
        assert handle == f"w{replica}" and made.step.new[whole].input[0] == str(shards[replica])
        # What the old write came after, the assignment does.
        assert controls == [f"^{name}" for name in versions[replica].controls] != []
        assert made.emitters[replica].emitted[f"step{replica}"] == [name]


def test_weights_of_one_type_travel_together_each_in_its_own_shape() -> None:
    made = Gathering(both, {"w": (5, 4), "v": (20,)}, trainable=("w", "v"))
    assigns = made.put_together()
    ((_, shards),) = made.dialect.gathered
    assert len(shards) == 2 and made.gathers.count == 1
    assert {*assigns} == {"w", "v"}
    written = {
        key: made.step.new[made.step.new[ops[0][0]].input[1]] for key, ops in assigns.items()
    }
    assert written["w"].op == "Identity" and written["v"].op == "Reshape"
    assert made.step.constant(written["v"].input[1]) == [20]


def test_a_weight_that_is_read_between_its_writes_is_assigned_twice_in_order() -> None:
    made = Gathering(seen_between, {"w": (5, 4)})
    assigns = made.put_together()
    assert made.gathers.count == len(made.dialect.gathered) == 2
    for replica, (first, second) in enumerate(assigns["w"]):
        assert f"^{first}" in made.step.new[second].input
        assert f"^{second}" not in made.step.new[first].input
        # The read between the two stays, and the second assignment comes after it.
        assert f"^look{replica}" in made.step.new[second].input


def test_a_weight_in_shards_is_gathered_where_it_is_read_after_what_the_read_came_after() -> None:
    made = Gathering(read_late, {"w": (5, 4)}, outputs=("shown0",))
    made.serve_reads()
    ((_, ((shard,),)),) = made.dialect.gathered
    read = made.step.new[shard.op]
    assert (read.op, [*read.input]) == ("ReadVariableOp", ["w_shard0", "^step0"])
    (whole,) = (n.name for n in made.step.new.values() if n.op == "Identity")
    assert made.replaced == {"late0": [read.name], Value("late0"): Value(whole)}
    assert made.gathers.count == 1


def test_it_travels_as_it_is_rounded_and_the_step_reads_its_own_type() -> None:
    made = Gathering(read_late, {"w": (5, 4)}, outputs=("shown0",))
    made.serve_reads(BFLOAT16)
    ((_, ((sent,),)),) = made.dialect.gathered
    assert made.step.new[sent.op].attr["DstT"].type == BFLOAT16
    back = made.step.new[made.replaced[Value("late0")].op]
    assert (back.op, back.attr["DstT"].type) == ("Cast", FLOAT32)


def test_a_read_that_nobody_looks_at_is_not_gathered_for() -> None:
    made = Gathering(read_late, {"w": (5, 4)}, controls=("late0",))
    made.serve_reads()
    assert made.dialect.gathered == [] and made.gathers.count == 0
    (read,) = (n.name for n in made.step.new.values() if n.op == "ReadVariableOp")
    assert made.replaced == {"late0": [read]}
