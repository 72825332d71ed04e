"""What XLA may compile: exact ops always, approximations where exactness is not asked for.

Beside `compiled_body`, which spells some out, exact ops are proved to have the kernels' bits.
"""

from __future__ import annotations

import pytest
import tensorflow as tf

from tf_wu_shard.dtypes import BFLOAT16, BOOL, FLOAT16, FLOAT32, FLOAT64, INT32, INT64
from tf_wu_shard.rules.compiled import EXACT, NEARLY, SPELLED_OUT, can_compile

COMPLEX64 = tf.complex64.as_datatype_enum


def test_no_op_is_in_two_tables_and_tensorflow_has_each() -> None:
    tables = (EXACT, SPELLED_OUT, NEARLY)
    assert len(frozenset[str]().union(*tables)) == sum(map(len, tables))
    assert all(hasattr(tf.raw_ops, op_type) for table in tables for op_type in table)


@pytest.mark.parametrize(
    ("op_type", "exactly", "nearly"),
    [
        ("Mul", True, True),
        ("Maximum", True, True),
        ("Rsqrt", False, True),
        ("Cumsum", False, False),
    ],
)
def test_what_only_comes_near_is_not_compiled_exactly(
    op_type: str, exactly: bool, nearly: bool
) -> None:
    assert can_compile(op_type, {FLOAT32}, exact=True) is exactly
    assert can_compile(op_type, {FLOAT32}, exact=False) is nearly


def test_one_element_type_of_which_nothing_is_proved_is_enough_to_refuse() -> None:
    proved = {FLOAT16, BFLOAT16, FLOAT32, FLOAT64, INT32, INT64, BOOL}
    assert can_compile("SelectV2", proved, exact=True)
    assert not can_compile("SelectV2", {*proved, COMPLEX64}, exact=False)


@pytest.mark.parametrize("exact", [True, False])
def test_numbers_are_not_made_integers(exact: bool) -> None:
    # The kernel makes -2**31 of 3e9 and of a NaN, XLA 2**31 - 1 and 0.
    assert not can_compile("Cast", {FLOAT32, INT32}, exact=exact)
    assert can_compile("Cast", {FLOAT32, BFLOAT16, FLOAT64}, exact=exact)
    assert can_compile("Cast", {FLOAT32, BOOL}, exact=exact)
    assert can_compile("Cast", {INT32, INT64}, exact=exact)


@pytest.mark.parametrize("op_type", ["RealDiv", "Div", "Round"])
def test_integers_are_neither_divided_nor_rounded(op_type: str) -> None:
    assert can_compile(op_type, {FLOAT32, BFLOAT16}, exact=True)
    assert not can_compile(op_type, {FLOAT32, INT32}, exact=False)
