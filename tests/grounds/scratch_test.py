"""A scratch variable holds its value for one run, and is nobody else's."""

from __future__ import annotations

import numpy as np
import pytest

from tests.grounds.dialect_test import run
from tf_wu_shard.dtypes import FLOAT32
from tf_wu_shard.graph.builder import Emitter
from tf_wu_shard.graph.op import Value
from tf_wu_shard.grounds.scratch import scratch_variable

pytestmark = pytest.mark.usefixtures("logical_cpus")


def test_each_holds_its_own_value_and_takes_writes() -> None:
    given = [np.full((2, 3), number, np.float32) for number in (1, 2)]

    def emit(at: Emitter, operands: list[list[Value]]) -> list[list[Value]]:
        read = []
        for number, (value,) in enumerate(operands):
            handle, filled = scratch_variable(at.within(f"own_{number}"), value, (2, 3))
            added = at.op("AssignAddVariableOp", [handle, value], "add", controls=[filled])
            read.append(
                at.op("ReadVariableOp", [handle], "read", controls=[added.op], dtype=FLOAT32)
            )
        return [read]

    # Run twice: what one run leaves, the next does not see.
    for _ in range(2):
        (found,), _ = run([[value] for value in given], emit)
        np.testing.assert_array_equal(found, [2 * value for value in given])
