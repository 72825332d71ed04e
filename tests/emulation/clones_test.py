"""A node of a program is copied for each replica, with what stands there for all that it reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.emulation.definitions import FLOAT, node
from tf_wu_shard.emulation import attributes
from tf_wu_shard.emulation.clones import Clones, Replica, replicas_on
from tf_wu_shard.errors import EmulationError

NUMBERS = np.array([4, 5], np.int32)


def clones(*nodes: Any, **outside: list[str]) -> Clones:
    """Copies of nodes for two replicas, and what stands in each for tensors from outside."""
    program = {one.name: one for one in nodes}
    replicas = replicas_on(["cpu0", "cpu1"])
    return Clones(program, replicas, outside.__getitem__, program, lambda name: (f"seen_{name}",))


def lines(made: Clones) -> list[str]:
    return [f"{n.name} = {n.op}({', '.join(n.input)}) @{n.device}" for n in made.nodes]


def test_each_device_has_a_replica_with_a_number_and_a_scope() -> None:
    assert replicas_on(["a", "b"]) == (Replica(0, "a", "replica_0/"), Replica(1, "b", "replica_1/"))


def test_a_copy_reads_its_own_replicas_values_and_waits_within_it() -> None:
    first = node("first", "Neg", "x", T=FLOAT)
    second = node("second", "Mul", "first:y:0", "x", "^first", "^pivot", T=FLOAT)
    made = clones(first, second, x=["a", "b"])
    made.copy(second)
    assert lines(made) == [
        "replica_0/second = Mul(replica_0/first:y:0, a, ^replica_0/first, ^seen_pivot) @cpu0",
        "replica_1/second = Mul(replica_1/first:y:0, b, ^replica_1/first, ^seen_pivot) @cpu1",
    ]


def test_marks_of_where_an_op_stood_are_left_behind_and_the_program_keeps_them() -> None:
    marked = node("marked", "Neg", "x", cluster="c", T=FLOAT)
    marked.attr["_class"].list.s.append(b"loc:@x")
    made = clones(marked, x=["a", "b"])
    made.copy(marked)
    assert [{*one.attr} for one in made.nodes] == [{"T"}] * 2
    assert {*marked.attr} == {"T", "_tpu_replicate", "_class"} and [*marked.input] == ["x"]


def test_what_differs_between_replicas_is_changed_in_their_copies_alone() -> None:
    drawn = node("drawn", "RandomUniform", "x", seed=attributes.integer(7))
    made = clones(drawn, x=["a", "b"])
    made.copy(drawn, [{}, {"seed": attributes.integer(9)}])
    assert [one.attr["seed"].i for one in made.nodes] == [7, 9]
    assert drawn.attr["seed"].i == 7


def test_something_else_may_stand_for_a_tensor_and_for_an_op() -> None:
    total = node("sum", "CrossReplicaSum", "x")
    reader = node("reader", "Neg", "sum:output:0", "^sum", T=FLOAT)
    made = clones(total, reader, x=["a", "b"])
    assert made.waits("sum") == ["replica_0/sum", "replica_1/sum"]
    made.stand_for("sum:output:0", ["all:sum:0", "all:sum:0"])
    made.stand_for_op("sum", ["all", "all"])
    assert made.inputs(reader) == [["all:sum:0", "^all"]] * 2
    assert made.waits("sum") == ["all"] and made.waits("pivot") == ["seen_pivot"]


def test_a_constant_is_found_behind_what_passes_it_on_and_a_computed_one_is_refused() -> None:
    known = node("known", "Const", value=attributes.tensor(NUMBERS), dtype=attributes.dtype(3))
    passed = node("passed", "Identity", "known:output:0")
    held = node("held", "StopGradient", "passed:output:0")
    computed = node("computed", "Neg", "known:output:0")
    reader = node("reader", "Sum", "held:output:0", "computed:y:0")
    made = clones(known, passed, held, computed, reader)
    np.testing.assert_array_equal(made.constant(reader, 0), NUMBERS)
    with pytest.raises(EmulationError, match=r"Sum 'reader' .* its input 1 \('computed'\)"):
        made.constant(reader, 1)
