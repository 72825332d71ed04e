"""The text says the verdict first, then the numbers, then every reason."""

from __future__ import annotations

import dataclasses

from tf_wu_shard.report.summary import Bytes, LeftAloneVariable, Report, ShardedVariable
from tf_wu_shard.report.text import slot_label

PARTLY = Report(
    function="one_step_on_data",
    verdict="partly sharded",
    num_replicas=4,
    variables=(
        ShardedVariable("dense/kernel", (5, 6), "float32", "flat 30/4 pad 34", ("m", "v"), 0, 34),
        ShardedVariable("out", (64,), "float32", "flat 64/4", (), 1, 0),
    ),
    left_alone=(
        LeftAloneVariable("bn/gamma", "12 elements, below min_elements=1024", ""),
        LeftAloneVariable("table", "no rule for Sum", "Sum_1"),
    ),
    notes=("it reduces a tensor of no static shape (reduce_7)",),
    slot_bytes_per_replica=Bytes(1_200_000_000, 152_000_000),
    wire_bytes=Bytes(410_000_000, 410_000_000),
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
one_step_on_data: sharded 2 of 4 variables over 4 replicas   slots 1.20 GB -> 152 MB a replica\
   wire 410 MB a step (unchanged)
  dense/kernel  flat 30/4 pad 34   slots m, v   bucket 0
  out           flat 64/4   slots none   bucket 1
left alone
  bn/gamma      12 elements, below min_elements=1024
  table         no rule for Sum (at Sum_1)
note: it reduces a tensor of no static shape (reduce_7)
emitted 2 all_gather, 2 reduce_scatter; pass 12 ms of 99 ms"""


def test_a_report_reads_as_ever() -> None:
    assert str(PARTLY) == GOLDEN


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
    assert lines[1] == f"replicas: {ON_TPUS.place}"
    assert lines[2] == ("weights gathered in bfloat16: 1 of 2, the shards keep their own type")
    assert lines[3].endswith("slots m, v   bucket 0   gathered in bfloat16")
    assert lines[4].endswith("slots none   bucket 1")


def test_where_matrix_functions_have_whole_tensors_is_said_of_each_and_counted() -> None:
    first, second = ON_TPUS.variables
    turns = dataclasses.replace(first, whole="by turns, 2 of 6 on each replica")
    lines = str(dataclasses.replace(ON_TPUS, variables=(turns, second))).splitlines()
    counted = "put together whole for matrix functions: 1 of 2"
    assert lines[3] == counted
    assert lines[4].endswith("gathered in bfloat16   whole by turns, 2 of 6 on each replica")
    assert "whole" not in lines[5]


def test_nothing_emitted_is_not_counted() -> None:
    assert "emitted" not in str(NOTHING)


def test_a_keras_slot_is_listed_without_its_variables_path() -> None:
    assert slot_label("adam/dense_kernel_momentum", "dense/kernel") == "momentum"
    assert slot_label("dense/kernel/Adam_1", "dense/kernel") == "dense/kernel/Adam_1"


def test_a_slot_of_its_weights_name_and_a_number_keeps_both() -> None:
    assert slot_label("Variable_3", "Variable") == "Variable_3"
