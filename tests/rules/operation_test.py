"""An op as its rule sees it: attributes are read without making any, constants follow the rows."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tf_wu_shard.dtypes import FLOAT32, INT64
from tf_wu_shard.rules.operation import Operation, OwnRows


def test_asking_for_an_attribute_that_is_not_there_adds_none() -> None:
    node = tf.compat.v1.NodeDef()
    node.attr["keep_dims"].b = True
    op = Operation("Sum", "op", (), node.attr, {}, (), FLOAT32)
    assert op.attribute("keep_dims").b and not op.attribute("other").b
    assert [*node.attr] == ["keep_dims"]


@pytest.mark.parametrize(
    ("behind", "constant"), [(None, 7), ((), [7]), ((3, 2), [7, 3, 2])], ids=str
)
def test_a_constant_has_the_number_of_a_shards_rows(
    behind: tuple[int, ...] | None, constant: int | list[int]
) -> None:
    assert OwnRows(INT64, behind).of(7) == constant
