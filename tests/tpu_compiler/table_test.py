"""Claims about tpu_compiler/table.py and the JSON of a comparison, on made-up figures."""

from __future__ import annotations

import json

from tests.tpu_compiler.samples import SHARDED, WHOLE, compared, compiled, figures
from tf_wu_shard.tpu_compiler.table import table_of


def line(table: str, label: str) -> list[str]:
    (found,) = (line for line in table.splitlines() if line.strip().startswith(label))
    return found.strip().removeprefix(label).split()


def test_collectives_asked_for_stand_beside_those_that_are_left() -> None:
    table = table_of(compared(WHOLE, SHARDED))
    assert line(table, "all-reduce") == ["180", "->", "3,", "1.00", "kB", "-"]
    assert line(table, "reduce-scatter") == ["-", "2", "->", "2,", "1.00", "kB"]


def test_times_and_memory_stand_side_by_side() -> None:
    table = table_of(compared(WHOLE, SHARDED))
    assert line(table, "in all  ") == ["4.00", "ms", "2.00", "ms"]
    assert line(table, "in all, with these copies") == ["8.00", "ms", "4.00", "ms"]
    assert line(table, "in use") == ["830", "MB", "830", "MB"]
    assert line(table, "of 17.2 GB") == ["fits", "fits"]


def test_a_step_that_does_not_compile_is_told_with_the_compilers_words() -> None:
    table = table_of(compared(compiled(None, "RESOURCE_EXHAUSTED: no room"), SHARDED))
    assert line(table, "of 17.2 GB") == ["does", "not", "fit", "fits"]
    assert "replicated: RESOURCE_EXHAUSTED: no room" in table.splitlines()
    assert "libtpu's own pass" not in table


def test_without_a_known_clock_times_are_cycles() -> None:
    whole, sharded = compiled(figures(6_000_000, None)), compiled(figures(3_000_000, None))
    table = table_of(compared(whole, sharded, topology="v6e:4x4"))
    assert line(table, "in all  ") == ["6.000", "Mcycles", "3.000", "Mcycles"]


def test_libtpus_own_sharding_would_be_told() -> None:
    own = compiled(figures(6_000_000, 4.0, reduce_scatter=5), all_reduce=5)
    assert "libtpu's own pass: made 5 reduce-scatters" in table_of(compared(own, SHARDED))
    assert "libtpu's own pass: left" in table_of(compared(WHOLE, SHARDED))


def test_reduce_scatters_that_turned_back_are_told() -> None:
    lost = compiled(figures(3_000_000, 2.0, reduce_scatter=1, all_reduce=1), reduce_scatter=2)
    told = "sharded: the compiler turned 1 of 2 reduce-scatters back into all-reduces"
    assert told in table_of(compared(WHOLE, lost)).splitlines()
    assert "turned" not in table_of(compared(WHOLE, SHARDED))


def test_json_has_both_steps_and_what_was_compiled() -> None:
    failed = compiled(None, "no room", all_reduce=1)
    found = json.loads(compared(failed, SHARDED).to_json())
    assert (found["topology"], found["replicas"], found["batch"]) == ("v5e:4x4", 16, 2)
    assert found["replicated"]["error"] == "no room"
    assert found["sharded"]["collectives"] == {"reduce-scatter": 2, "all-gather": 2}
    assert found["sharded"]["milliseconds"] == 2.0
    assert found["sharded"]["memory_in_use_bytes"] == 830_000_000
