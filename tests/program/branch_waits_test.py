"""What takes the place of a branch op waits for no more than it has to."""

from __future__ import annotations

import tensorflow as tf

from tests.program.branching import Given, Strategies, converted


def test_an_access_waits_for_those_of_its_own_variable_alone(emulated: Strategies) -> None:
    def step(given: Given) -> None:
        given.weight.assign_sub(given.total)
        given.sums.assign_add(given.total)

        def mixed() -> None:
            given.weight.assign(given.sums * 0.5)
            given.sums.assign(given.sums * 0.25)

        tf.cond(given.same > 0, mixed, lambda: None)

    view = converted(emulated(2), step).view
    writes = {op.name: op.inputs[0].op for op in view if op.type.startswith("Assign")}
    assert len(writes) == 4
    reads = [op for op in view if op.type == "ReadVariableOp" and "wu_shard_read" in op.name]
    assert len(reads) == 2
    for read in reads:
        assert [writes[c] for c in read.controls if c in writes] == [read.inputs[0].op]
