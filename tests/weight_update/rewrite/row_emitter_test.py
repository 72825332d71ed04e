"""One replica's copy of an update of rows works on its own rows, numbered within its shard."""

from __future__ import annotations

import tensorflow as tf

from tests.weight_update.rewrite.raw_steps import DEVICES, Copy, RawStep, sparse_step
from tf_wu_shard.graph.op import Value
from tf_wu_shard.grounds.dialect import Gathered
from tf_wu_shard.layout import row_layout
from tf_wu_shard.weight_update.rewrite.row_emitter import RowEmitter, RowWrite

# Sixteen rows of four: the second shard has rows 8 to 15.
SHAPES = {"w": (16, 4), "m": (16, 4)}
LAYOUT = row_layout((16, 4), 2, 4)


def stepped(copy: Copy) -> None:
    copy.scatter("Sub", "w", "step")


def counted(copy: Copy) -> None:
    copy.scatter("Add", "m", "put")
    stepped(copy)


def fused(copy: Copy) -> None:
    rows, places = tf.raw_ops.Unique(x=copy.rows, name=copy.named("only"))
    shape = tf.shape(rows, tf.int32, name=copy.named("size"))
    count = tf.strided_slice(shape, [0], [1], [1], shrink_axis_mask=1, name=copy.named("many"))
    rate = tf.constant(0.5, name=copy.named("rate"))
    sums = tf.math.unsorted_segment_sum(copy.total, places, count, name=copy.named("sums"))
    tf.raw_ops.ResourceSparseApplyMomentum(
        var=copy.handles["w"],
        accum=copy.handles["m"],
        lr=rate,
        grad=sums,
        indices=rows,
        momentum=rate,
        name=copy.named("step"),
    )


def decayed(copy: Copy) -> None:
    old = copy.read("w", "old")
    less = copy.write("AssignSub", "w", tf.multiply(old, 0.5, copy.named("less")), "decay", [old])
    copy.scatter("Sub", "w", "step", [less])


def emitted(step: RawStep) -> RowEmitter:
    """The emitter of the second replica's copy, after it has emitted."""
    rows = step.of_each("own_rows", tf.int64)
    values = step.of_each("own")
    own = {
        reduction.key: rows if reduction.gathered is Gathered.ROWS else values
        for reduction in step.analysis.reductions
    }
    emitter = RowEmitter(step.emission, step.update, [LAYOUT], 1, own, places={})
    for op in emitter.update.body:
        emitter.emit_op(op)
    return emitter


def test_rows_are_scattered_into_a_slots_shard_in_place() -> None:
    step = sparse_step(counted, SHAPES).with_shards_of("m")
    emitter = emitted(step)
    (put,) = emitter.emitted["put1"]
    node = step.new[put]
    assert (node.op, node.device) == ("ResourceScatterAdd", DEVICES[1])
    assert [*node.input] == ["m_shard1", "own_rows1", "own1"]
    assert emitter.stand_ins == {put: "put1"}


def test_rows_of_a_weight_are_kept_for_all_replicas_to_scatter() -> None:
    step = sparse_step(counted, SHAPES).with_shards_of("m")
    emitter = emitted(step)
    written = RowWrite("ResourceScatterSub", Value("own_rows1"), Value("own1"))
    assert emitter.row_writes == {"w": [written]}
    assert emitter.emitted["step1"] == [] and emitter.versions["w"][0].writes == ["step1"]
    assert not any(node.op == "ResourceScatterSub" for node in step.new.values())


def test_a_weight_that_changes_as_a_whole_is_cut_and_its_rows_are_scattered_into_the_value() -> (
    None
):
    step = sparse_step(decayed, {"w": (16, 4)})
    emitter = emitted(step)
    assert emitter.row_writes == {}
    (version,) = emitter.versions["w"]
    assert version.shard is not None
    changed = step.new[version.shard.op]
    present, column, values = changed.input
    assert changed.op == "TensorScatterSub" and values == "own1"
    assert step.new[present].op == "Sub"
    assert step.new[column].input[0] == "own_rows1"
    assert step.constant(step.new[column].input[1]) == [-1, 1]
    emitter.finish()
    flat = step.new[version.shard.op]
    assert flat.input[0] == changed.name and step.constant(flat.input[1]) == [-1]


def test_a_fused_update_works_on_the_rows_alone_renumbered_and_puts_them_back() -> None:
    step = sparse_step(fused, SHAPES).with_shards_of("m")
    emitter = emitted(step)
    (only,) = emitter.emitted["only1"]
    applied, back = (step.new[name] for name in emitter.emitted["step1"])
    weight, slot, _, _, numbers, *_ = applied.input
    assert step.new[weight].op == step.new[slot].op == "VarHandleOp"
    assert step.new[numbers].op == "Range"
    # The slot's rows go back into its shard, the weight's to all replicas.
    assert back.op == "ResourceScatterUpdate" and [*back.input[:2]] == ["m_shard1", only]
    (written,) = emitter.row_writes["w"]
    assert written.type == "ResourceScatterUpdate" and written.rows == Value(only)
    assert step.new[written.values.op].input[0] == weight
    # Rows of a weight that is not cut are looked up where the whole table has them.
    reads = {n.input[0]: n.input[1] for n in step.new.values() if n.op == "ResourceGather"}
    assert reads["m_shard1"] == only
    renumbered = step.new[reads["w1"]]
    assert renumbered.op == "AddV2" and renumbered.input[0] == only
    assert step.constant(renumbered.input[1]) == 8


def test_results_that_are_put_in_are_read_by_what_follows_and_waited_for() -> None:
    step = sparse_step(counted, SHAPES).with_shards_of("m")
    first, second = step.update.body
    emitter = RowEmitter(step.emission, step.update, [LAYOUT], 1, {}, places={})
    emitter.put_results(first, [Value("whole"), Value("rest")], "joined")
    assert emitter.emitted[first.ops[1]] == ["joined"] and emitter.results.keys() == {0}
    assert second.ops[1] not in emitter.emitted
