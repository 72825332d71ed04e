"""The table of writes says what each write does."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tf_wu_shard.rules.variables import READ, WHOLE_READS, WRITES, Access


@pytest.mark.parametrize("write", WRITES)
def test_a_write_is_the_arithmetic_it_stands_for(write: str) -> None:
    old = np.array([1.5, -2.0, 3.0], np.float32)
    operand = np.array([0.25, 4.0, -1.0], np.float32)
    variable = tf.Variable(old)
    getattr(tf.raw_ops, write)(resource=variable.handle, value=operand)
    arithmetic = WRITES[write]
    expected = operand if arithmetic is None else getattr(tf.raw_ops, arithmetic)(x=old, y=operand)
    np.testing.assert_array_equal(variable.numpy(), expected)


def test_reads_and_writes_exist_in_tensorflow_and_do_not_overlap() -> None:
    for op_type in (READ, *WHOLE_READS, *WRITES):
        assert hasattr(tf.raw_ops, op_type)
    assert not {READ, *WHOLE_READS} & set(WRITES)


def test_only_reads_leave_a_variable_as_it_is() -> None:
    assert {a for a in Access if a.is_read} == {Access.READ, Access.LOOK, Access.PASSED_ON}
