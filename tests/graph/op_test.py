"""An edge of a GraphDef names an op and one of its outputs; its attributes are only read."""

from __future__ import annotations

import tensorflow as tf

from tf_wu_shard.graph.op import Op, Value, attribute_in, parse_value


def test_a_data_input_names_an_op_and_an_output() -> None:
    assert parse_value("a/b") == Value("a/b", 0)
    assert parse_value("a/b:3") == Value("a/b", 3)
    assert [str(Value("a")), str(Value("a", 2))] == ["a", "a:2"]


def test_asking_for_an_attribute_that_is_not_there_adds_none() -> None:
    node = tf.compat.v1.NodeDef(name="a", op="Sum")
    node.attr["keep_dims"].b = True
    before = node.SerializeToString(deterministic=True)
    assert attribute_in(node.attr, "keep_dims").b
    assert attribute_in(node.attr, "T").type == 0
    assert node.SerializeToString(deterministic=True) == before


def test_an_identity_of_several_passes_each_on_by_number() -> None:
    operands = tuple(Value(name) for name in "abc")
    bundle, sum_ = (Op("op", type_, operands, (), "", 0, None) for type_ in ("IdentityN", "AddN"))
    assert bundle.passes_each_on
    assert bundle.operands_of(2) == (Value("c"),)
    assert bundle.result_of(2) == Value("op", 2)
    assert not sum_.passes_each_on
    assert sum_.operands_of(0) == operands
    assert sum_.result_of(2) == Value("op")
