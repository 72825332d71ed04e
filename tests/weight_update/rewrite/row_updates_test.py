"""Each replica takes the entries of its rows, and what it has for a whole weight all scatter."""

from __future__ import annotations

import tensorflow as tf

from tests.weight_update.rewrite.raw_steps import DEVICES, Copy, RawStep, sparse_step
from tf_wu_shard.graph.op import Value
from tf_wu_shard.layout import row_layout
from tf_wu_shard.step.reductions import GradientReduction
from tf_wu_shard.weight_update.analysis.types import all_entries
from tf_wu_shard.weight_update.rewrite.row_emitter import RowEmitter
from tf_wu_shard.weight_update.rewrite.row_updates import emit_rows, exchange_rows, own_entries

LAYOUT = row_layout((16, 4), 2, 4)
VALUES, ROWS = 0, 1


def stepped(copy: Copy) -> None:
    copy.scatter("Add", "m", "put")
    copy.scatter("Sub", "w", "step")


def step_of() -> RawStep:
    return sparse_step(stepped, {"w": (16, 4), "m": (16, 4)}).with_shards_of("m")


def parts(step: RawStep) -> tuple[GradientReduction, ...]:
    return step.analysis.reductions_of(step.update)


def test_the_entries_of_all_are_put_together_and_each_replica_picks_those_of_its_rows() -> None:
    step = step_of()
    own, places = own_entries(step.emission, parts(step), LAYOUT, step.update)
    gathered = [n for n in step.new.values() if n.op == "ConcatV2"]
    assert [[*n.input[:2]] for n in gathered] == [["i0", "i1"], ["v0", "v1"]]
    rows, values = (node.name for node in gathered)
    for replica, device in enumerate(DEVICES):
        picked, named = (step.new[own[key][replica].op] for key in (VALUES, ROWS))
        assert (picked.op, picked.device, named.op) == ("GatherV2", device, "Sub")
        assert [*picked.input[:2]] == [values, places[replica].op]
        # Rows are numbered from the shard's first.
        assert step.constant(named.input[1]) == 8 * replica
        assert [*step.new[named.input[0]].input[:2]] == [rows, places[replica].op]
    tests = [{n.op for n in step.new.values() if n.device == d} for d in DEVICES]
    assert ("Less" in tests[0], "GreaterEqual" in tests[0]) == (True, False)
    assert ("Less" in tests[1], "GreaterEqual" in tests[1]) == (False, True)


def test_the_copies_of_all_replicas_work_on_what_each_has() -> None:
    step = step_of()
    emitters, replaced = emit_rows(step.emission, step.update, LAYOUT, parts(step))
    assert replaced == {} and len(emitters) == 2
    for replica, emitter in enumerate(emitters):
        ((written,),) = emitter.row_writes.values()
        # Where the replica's entries stand among all, by the gradient that has them.
        (entries,) = emitter.places
        assert entries == all_entries(VALUES)
        assert step.new[written.values.op].input[1] == emitter.places[entries].op
        (put,) = emitter.emitted[f"put{replica}"]
        assert [*step.new[put].input] == [
            *(f"m_shard{replica}", written.rows.op, written.values.op),
        ]


def exchanged(step: RawStep) -> tuple[list[RowEmitter], tuple[tuple[str, ...], ...]]:
    """The emitters, and by replica what writes the weight."""
    emitters, _ = emit_rows(step.emission, step.update, LAYOUT, parts(step))
    found = exchange_rows(step.emission, emitters)
    assert found.keys() == {"w"}
    return emitters, found["w"]


def test_all_replicas_scatter_what_all_have_into_their_whole_weights() -> None:
    step = step_of()
    emitters, assigns = exchanged(step)
    writes = [emitter.row_writes["w"][0] for emitter in emitters]
    for replica, (name,) in enumerate(assigns):
        node = step.new[name]
        assert (node.op, node.device) == ("ResourceScatterSub", DEVICES[replica])
        handle, rows, values = node.input
        assert handle == f"w{replica}"
        assert [*step.new[values].input[:2]] == [write.values.op for write in writes]
        # In the whole table, the second replica's rows begin at the eighth.
        numbers = [step.new[text] for text in step.new[rows].input[:2]]
        assert [n.input[0] for n in numbers] == [write.rows.op for write in writes]
        assert [step.constant(n.input[1]) for n in numbers] == [0, 8]
        assert emitters[replica].emitted[f"step{replica}"] == [name]


def test_a_weights_scatters_come_in_the_order_of_its_writes() -> None:
    def twice(copy: Copy) -> None:
        first = copy.scatter("Add", "w", "first")
        look = copy.read("w", "look", after=[first])
        tf.raw_ops.Print(input=look, data=[], name=copy.named("kept"))
        copy.scatter("Sub", "w", "second", [look])

    step = sparse_step(twice, {"w": (16, 4)})
    _, assigns = exchanged(step)
    for replica, (first, second) in enumerate(assigns):
        assert [step.new[n].op for n in (first, second)] == [
            *("ResourceScatterAdd", "ResourceScatterSub"),
        ]
        # And the second one after the read in between.
        controls = {text for text in step.new[second].input if text.startswith("^")}
        assert controls == {f"^{first}", f"^look{replica}"}


def test_what_others_look_at_is_put_together_from_all_rows() -> None:
    def squared(copy: Copy) -> None:
        sums = tf.math.unsorted_segment_sum(
            copy.total, copy.rows, tf.constant(16, name=copy.named("all")), copy.named("sums")
        )
        lengths = tf.raw_ops.Sum(input=sums, axis=[1], name=copy.named("lengths"))
        tf.raw_ops.Print(input=lengths, data=[], name=copy.named("kept"))
        copy.write("AssignSub", "w", sums, "step")

    step = sparse_step(squared, {"w": (16, 4)})
    assert {op.ops[0] for op in step.update.body if op.gathered} == {"lengths0"}
    emitters, replaced = emit_rows(step.emission, step.update, LAYOUT, parts(step))
    assert replaced.keys() == {Value("lengths0"), Value("lengths1")}
    for replica in range(2):
        whole = step.new[replaced[Value(f"lengths{replica}")].op]
        own = [emitter.gathered[f"lengths{r}"].op for r, emitter in enumerate(emitters)]
        assert whole.op == "ConcatV2" and [*whole.input[:2]] == own
    assert exchange_rows(step.emission, emitters) == {}
