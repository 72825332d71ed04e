"""One replica's copy of a body works on its shards, in the order of the old accesses."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tests.weight_update.rewrite.raw_steps import DEVICES, Copy, RawStep, dense_step
from tf_wu_shard.layout import flat_layout
from tf_wu_shard.weight_update.rewrite.body_emitter import BodyEmitter

# Of 20 elements the second shard has the last 4.
SHAPES = {"w": (5, 4), "m": (5, 4)}
LAYOUT = flat_layout((5, 4), 2, 4)


def momentum(copy: Copy) -> None:
    put = copy.write("AssignAdd", "m", copy.total, "put")
    moved = copy.read("m", "moved", after=[put])
    copy.write("AssignSub", "w", moved, "step")


def fused(copy: Copy) -> None:
    rate = tf.constant(0.5, name=copy.named("rate"))
    tf.raw_ops.ResourceApplyMomentum(
        var=copy.handles["w"],
        accum=copy.handles["m"],
        lr=rate,
        grad=copy.total,
        momentum=rate,
        name=copy.named("step"),
    )


def normed(copy: Copy) -> None:
    norm = tf.raw_ops.L2Loss(t=copy.total, name=copy.named("norm"))
    copy.write("AssignSub", "w", tf.multiply(copy.total, norm, copy.named("unit")), "step")


def emitted(step: RawStep, replica: int = 1) -> BodyEmitter:
    """The emitter of a replica's copy, after it has emitted."""
    gradients = {0: step.of_each("shard")}
    emitter = BodyEmitter(step.emission, step.update, [LAYOUT], replica, gradients)
    for op in emitter.update.body:
        emitter.emit_op(op)
    return emitter


def test_a_slot_is_read_and_written_in_its_shard_one_after_the_other() -> None:
    step = dense_step(momentum, SHAPES).with_shards_of("m")
    emitter = emitted(step)
    ((put,), (moved,)) = (emitter.emitted[name] for name in ("put1", "moved1"))
    assert step.new[put].op == "AssignAddVariableOp"
    assert [*step.new[put].input] == ["m_shard1", "shard1"]
    assert step.new[moved].op == "ReadVariableOp"
    assert [*step.new[moved].input] == ["m_shard1", f"^{put}"]
    assert emitter.stand_ins == {put: "put1", moved: "moved1"}
    own = [node for node in step.new.values() if node.op != "Placeholder"]
    assert {node.device for node in own} == {DEVICES[1]}


def test_a_weight_is_cut_from_the_whole_and_carried_as_a_value() -> None:
    step = dense_step(momentum, SHAPES).with_shards_of("m")
    emitter = emitted(step)
    (version,) = emitter.versions["w"]
    assert version.shard is not None and version.writes == ["step1"]
    less = step.new[version.shard.op]
    (moved,) = emitter.emitted["moved1"]
    assert less.op == "Sub" and less.input[1] == moved
    cut = step.new[less.input[0]]
    assert cut.op == "Slice"
    # The last 4 elements of what the replica's own component holds.
    assert [step.constant(name) for name in cut.input[1:]] == [[16], [4]]
    whole = step.new[step.new[cut.input[0]].input[0]]
    assert (whole.op, [*whole.input]) == ("ReadVariableOp", ["w1"])
    # The assignment is to wait for that read.
    assert version.controls == [whole.name]


def test_what_waits_for_the_last_write_waits_for_the_assignment_in_its_place() -> None:
    def twice(copy: Copy) -> None:
        first = copy.write("AssignSub", "w", copy.total, "decay")
        copy.write("AssignSub", "w", copy.total, "step", after=[first])

    step = dense_step(twice, {"w": (5, 4)})
    emitter = emitted(step)
    assert emitter.emitted["decay1"] == emitter.emitted["step1"] == []
    (version,) = emitter.versions["w"]
    assert version.writes == ["decay1", "step1"] and version.shard is not None
    last = step.new[version.shard.op]
    assert step.new[last.input[0]].op == last.op == "Sub"
    emitter.replace_writes(version, "assign")
    # In between only the body looks.
    assert emitter.emitted["decay1"] == [] and emitter.emitted["step1"] == ["assign"]


def test_a_fused_update_works_on_a_variable_of_this_step_that_holds_the_weights_shard() -> None:
    step = dense_step(fused, SHAPES).with_shards_of("m")
    emitter = emitted(step)
    (applied,) = (n for n in step.new.values() if n.op == "ResourceApplyMomentum")
    scratch, slot, *others = applied.input
    assert slot == "m_shard1" and others[:3] == ["rate1", "shard1", "rate1"]
    handle = step.new[scratch]
    assert handle.op == "VarHandleOp"
    assert tf.TensorShape(handle.attr["shape"].shape) == (4,)
    (filled,) = (n for n in step.new.values() if n.op == "AssignVariableOp")
    assert filled.input[0] == scratch and f"^{filled.name}" in others
    (version,) = emitter.versions["w"]
    assert version.shard is not None
    read = step.new[version.shard.op]
    assert (read.op, [*read.input]) == ("ReadVariableOp", [scratch, f"^{applied.name}"])


@pytest.mark.parametrize("replica", [0, 1])
def test_of_a_sum_each_replica_emits_its_part_and_the_rest_reads_the_old_one(replica: int) -> None:
    step = dense_step(normed, {"w": (5, 4)})
    emitter = emitted(step, replica)
    name = f"norm{replica}"
    part = emitter.parts[name]
    assert emitter.emitted[name] == [part.op] and name not in emitter.stand_ins.values()
    before, pending = set[str](), [part.op]
    while pending:
        pending += [i for i in step.new[pending.pop()].input if i in step.new and i not in before]
        before.update(pending)
    taken = {text for n in {part.op, *before} for text in step.new[n].input} - before
    assert taken == {f"shard{replica}"}
    (unit,) = emitter.emitted[f"unit{replica}"]
    assert [*step.new[unit].input] == [f"shard{replica}", name]


def test_the_old_read_of_a_whole_weight_stays_and_the_shard_is_cut_from_it() -> None:
    def decayed(copy: Copy) -> None:
        old = copy.read("w", "old")
        less = tf.multiply(old, copy.total, copy.named("less"))
        copy.write("AssignSub", "w", less, "step", after=[old])

    step = dense_step(decayed, {"w": (5, 4)})
    emitter = emitted(step)
    (less,) = emitter.emitted["less1"]
    cut = step.new[step.new[less].input[0]]
    assert cut.op == "Slice" and step.new[cut.input[0]].input[0] == "old1"
    assert "old1" not in emitter.emitted
    assert step.new[less].op == "Mul"
