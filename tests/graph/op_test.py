"""An edge of a GraphDef names an op and one of its outputs."""

from __future__ import annotations

from tf_wu_shard.graph.op import Value, parse_value


def test_a_data_input_names_an_op_and_an_output() -> None:
    assert parse_value("a/b") == Value("a/b", 0)
    assert parse_value("a/b:3") == Value("a/b", 3)
    assert [str(Value("a")), str(Value("a", 2))] == ["a", "a:2"]
