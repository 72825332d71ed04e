"""The text says the verdict first, then the numbers, then every reason."""

from __future__ import annotations

import dataclasses
import json

from tf_wu_shard.refusals import Plan, Rules
from tf_wu_shard.report.report import (
    Bytes,
    Report,
    ShardedVariable,
    percent_text,
    slot_label,
    verdict_line,
)
from tf_wu_shard.report.share import HeldBack, Share, left_alone

PARTLY = Report(
    function="one_step_on_data",
    verdict="partly sharded",
    num_replicas=4,
    variables=(
        ShardedVariable("dense/kernel", (5, 6), "float32", "flat 30/4 pad 34", ("m", "v"), 0, 34),
        ShardedVariable("out", (64,), "float32", "flat 64/4", (), 1, 0),
    ),
    left_alone=(
        left_alone("bn/gamma", Plan.TOO_SMALL.at(elements=12, limit=1024)),
        left_alone("table", Rules.NO_RULE.at("Sum_1", op_type="Sum")),
    ),
    notes=("it reduces a tensor of no static shape (reduce_7)",),
    slot_bytes_per_replica=Bytes(1_200_000_000, 152_000_000),
    wire_bytes=Bytes(410_000_000, 410_000_000),
    elements=Share(94, 400),
    slot_bytes=Share(1_164_000_000, 1_200_000_000),
    held_back=HeldBack(1, 294, "table", "no rule for Sum", "Sum_1", "an update without Sum", ""),
    emitted={"reduce_scatter": 2, "all_gather": 2},
    pass_ms=12.3,
    trace_ms=98.7,
)

# The same of a TPU program.
ON_TPUS = dataclasses.replace(
    PARTLY,
    variables=(
        dataclasses.replace(PARTLY.variables[0], gathered_in="bfloat16"),
        PARTLY.variables[1],
    ),
    weight_bytes_per_replica=Bytes(600_000_000, 76_000_000),
    place="a 2x2 torus: collectives along one axis at a time, in groups of 2, then of 2",
)

NOTHING = dataclasses.replace(PARTLY, verdict="nothing sharded", variables=(), emitted={})

GOLDEN = """\
one_step_on_data: sharded 23 % of 400 elements and 97 % of 1.20 GB of slots: 2 of 4 variables over\
 4 replicas   slots 1.20 GB -> 152 MB a replica   wire 410 MB a step (unchanged)
held back: table, 73 % of the elements: no rule for Sum (at Sum_1); lifted by an update without Sum
  dense/kernel  flat 30/4 pad 34   slots m, v   bucket 0
  out           flat 64/4   slots none   bucket 1
left alone
  bn/gamma      12 elements, below min_elements=1024
  table         no rule for Sum (at Sum_1)
note: it reduces a tensor of no static shape (reduce_7)
emitted 2 all_gather, 2 reduce_scatter; pass 12 ms of 99 ms"""


def test_a_report_reads_as_ever() -> None:
    assert str(PARTLY) == GOLDEN


def test_other_passes_are_named_first() -> None:
    changes = {"rounded_gradients": "4 gradients travel rounded"}
    changed = dataclasses.replace(PARTLY, changes=changes)
    lines = str(changed).splitlines()
    said = "changed by rounded_gradients (4 gradients travel rounded)"
    assert lines[0].startswith(f"one_step_on_data: {said}: sharded 23 %")
    assert lines[1:] == GOLDEN.splitlines()[1:]
    assert json.loads(changed.to_json())["changes"] == changes


def test_the_headline_is_the_first_line() -> None:
    assert PARTLY.headline == GOLDEN.splitlines()[0]


def test_a_changed_wire_tells_what_it_was() -> None:
    changed = dataclasses.replace(PARTLY, wire_bytes=Bytes(500, 250))
    assert changed.headline.endswith("wire 250 B a step (was 500 B)")


def test_nothing_sharded_says_why_in_the_first_line() -> None:
    # Of all reasons the size matters least, so another one goes before it.
    assert [a.name for a in NOTHING.left_alone] == ["bn/gamma", "table"]
    assert NOTHING.headline.startswith("one_step_on_data: nothing sharded: table: ")
    assert NOTHING.headline.endswith(" (and 2 more)")
    small = dataclasses.replace(NOTHING, left_alone=NOTHING.left_alone[:1], notes=())
    assert small.headline == (
        "one_step_on_data: nothing sharded: bn/gamma: 12 elements, below min_elements=1024"
    )
    single = dataclasses.replace(NOTHING, left_alone=(), notes=("a note",))
    assert single.headline == "one_step_on_data: nothing sharded: a note"
    empty = dataclasses.replace(single, notes=())
    assert empty.headline.endswith("nothing sharded: it reduces no gradient over replicas")


def test_of_tpus_it_says_where_replicas_sit_and_how_weights_are_stored_and_travel() -> None:
    lines = str(ON_TPUS).splitlines()
    assert "slots 1.20 GB -> 152 MB a replica   weights 600 MB -> 76.0 MB   wire" in lines[0]
    assert lines[2] == f"replicas: {ON_TPUS.place}"
    assert lines[3] == ("weights gathered in bfloat16: 1 of 2, the shards keep their own type")
    assert lines[4].endswith("slots m, v   bucket 0   gathered in bfloat16")
    assert lines[5].endswith("slots none   bucket 1")


def test_where_matrix_functions_have_whole_tensors_is_said_of_each_and_counted() -> None:
    first, second = ON_TPUS.variables
    turns = dataclasses.replace(first, whole="by turns, 2 of 6 on each replica")
    lines = str(dataclasses.replace(ON_TPUS, variables=(turns, second))).splitlines()
    counted = "put together whole for matrix functions: 1 of 2"
    assert lines[4] == counted
    assert lines[5].endswith("gathered in bfloat16   whole by turns, 2 of 6 on each replica")
    assert "whole" not in lines[6]


def test_a_share_is_never_said_to_be_more_than_it_is() -> None:
    parts = [Share(999, 1000), Share(1, 1000), Share(0, 9), Share(9, 9), Share(0, 0)]
    assert [*map(percent_text, parts)] == ["99 %", "under 1 %", "0 %", "100 %", "100 %"]


def test_an_optimizer_without_slots_is_judged_by_its_elements() -> None:
    report = dataclasses.replace(PARTLY, slot_bytes=Share(0, 0))
    assert ": sharded 23 % of 400 elements: 2 of 4 variables over 4 replicas   " in str(report)
    assert report.share == 94 / 400
    assert dataclasses.replace(PARTLY, slot_bytes=Share(1, 9)).share == 1 / 9
    assert NOTHING.share == 0


def test_the_line_for_the_log_tells_place_line_and_cure_once() -> None:
    assert PARTLY.held_back is not None
    held = dataclasses.replace(PARTLY.held_back, variables=3, line="train.py:50 in step")
    line = verdict_line(dataclasses.replace(PARTLY, held_back=held))
    assert line == PARTLY.headline + (
        "; held back: 3 variables such as table, 73 % of the elements: no rule for Sum (at Sum_1,"
        " train.py:50 in step); lifted by an update without Sum"
    )
    assert verdict_line(NOTHING).count("no rule for Sum") == 1
    assert verdict_line(NOTHING).endswith(" (at Sum_1); lifted by an update without Sum")


def test_nothing_emitted_is_not_counted() -> None:
    assert "emitted" not in str(NOTHING)


def test_a_keras_slot_is_listed_without_its_variables_path() -> None:
    assert slot_label("adam/dense_kernel_momentum", "dense/kernel") == "momentum"
    assert slot_label("dense/kernel/Adam_1", "dense/kernel") == "dense/kernel/Adam_1"


def test_a_slot_of_its_weights_name_and_a_number_keeps_both() -> None:
    assert slot_label("Variable_3", "Variable") == "Variable_3"
