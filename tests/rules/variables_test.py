"""What reads a variable is named, and only reads leave it as it is."""

from __future__ import annotations

import tensorflow as tf

from tf_wu_shard.rules.variables import READ, WHOLE_READS, Access


def test_reads_exist_in_tensorflow() -> None:
    assert all(hasattr(tf.raw_ops, op_type) for op_type in (READ, *WHOLE_READS))
    assert READ not in WHOLE_READS


def test_only_reads_leave_a_variable_as_it_is() -> None:
    assert {a for a in Access if a.is_read} == {Access.READ, Access.LOOK, Access.PASSED_ON}
