"""The array ops that communication is made of, run."""

from __future__ import annotations

import numpy as np
import pytest

from tests.grounds.dialect_test import contributions, devices_of, in_order, run, same
from tf_wu_shard.dtypes import BFLOAT16, BOOL, FLOAT32, FLOAT64
from tf_wu_shard.grounds.plain_ops import combined, divided, lane_elements, lists_of_each
from tf_wu_shard.placement import Combine

pytestmark = pytest.mark.usefixtures("logical_cpus")


def test_shards_begin_at_multiples_of_64_bytes() -> None:
    lanes = {dtype: lane_elements(dtype) for dtype in (BOOL, BFLOAT16, FLOAT32, FLOAT64)}
    assert lanes == {BOOL: 64, BFLOAT16: 32, FLOAT32: 16, FLOAT64: 8}


@pytest.mark.parametrize("count", [1, 2, 5])
def test_sums_are_made_in_the_order_of_their_terms(count: int) -> None:
    (terms,) = operands = contributions([(5, 29)], count)
    ((total,),), _ = run(operands, lambda at, v: [[combined(at, v[0], Combine.SUM, "all")]])
    assert same(total, in_order(terms))


@pytest.mark.parametrize(("combine", "of_all"), [(Combine.MAX, np.max), (Combine.MIN, np.min)])
def test_extrema_are_those_of_each_element(combine: Combine, of_all: np.ufunc) -> None:
    (terms,) = operands = contributions([(5, 29)], 3)
    ((found,),), _ = run(operands, lambda at, v: [[combined(at, v[0], combine, "all")]])
    assert same(found, of_all(np.stack(terms), axis=0))


def test_a_mean_is_a_sum_divided_and_a_sum_is_left() -> None:
    (terms,) = operands = contributions([(7,)], 1)
    found, nodes = run(operands, lambda at, v: [[divided(at, v[0][0], n) for n in (3, 1)]])
    assert same(found[0][0], terms[0] / np.float32(3)) and same(found[0][1], terms[0])
    assert [node.op for node in nodes if node.op != "Const"] == ["RealDiv"]


def test_every_device_has_all_lists_one_behind_the_other() -> None:
    parts = [np.arange(n, dtype=np.int32) + 10 * n for n in (3, 0, 2)]
    devices = devices_of(3)
    found, nodes = run(
        [[part] * 3 for part in parts],
        lambda at, v: [lists_of_each(at, devices, {"rows": [own[0] for own in v]})["rows"]],
    )
    assert all(same(one, np.concatenate(parts)) for one in found[0])
    assert [node.device for node in nodes if node.op == "ConcatV2"] == [*devices]
