"""An op's attributes: read from its definition, found from its operands, written by kind."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from tf_wu_shard.dtypes import BOOL, FLOAT32, INT32, RESOURCE
from tf_wu_shard.errors import WuShardError
from tf_wu_shard.graph.attributes import Signature, write
from tf_wu_shard.tensorflow_private import function_graph


def signature(op_type: str) -> Signature:
    return Signature.of(function_graph.op_def(op_type))


def attributes(**values: Any) -> Any:
    """The attributes of a NodeDef, each of a kind and a value."""
    node = tf.compat.v1.NodeDef()
    for name, (kind, value) in values.items():
        write(node.attr[name], kind, value)
    return node.attr


def test_an_op_without_a_definition_has_no_signature() -> None:
    assert Signature.known(None) is None
    known = Signature.known(function_graph.op_def("Neg"))
    assert known == signature("Neg") and known is not None and known.name == "Neg"


@pytest.mark.parametrize(
    ("op_type", "given", "types"),
    [
        ("Neg", {"T": ("type", FLOAT32)}, [FLOAT32]),
        ("Less", {"T": ("type", FLOAT32)}, [BOOL]),
        ("VarHandleOp", {}, [RESOURCE]),
        ("Split", {"T": ("type", INT32), "num_split": ("int", 3)}, [INT32] * 3),
        ("IdentityN", {"T": ("list(type)", [FLOAT32, BOOL])}, [FLOAT32, BOOL]),
        ("NoOp", {}, []),
    ],
)
def test_the_types_of_results_follow_from_the_definition(
    op_type: str, given: dict[str, Any], types: list[int]
) -> None:
    assert signature(op_type).result_types(attributes(**given)) == types


@pytest.mark.parametrize(
    ("op_type", "operands", "found"),
    [
        ("Mul", [FLOAT32, FLOAT32], {"T": FLOAT32}),
        ("AddN", [INT32] * 3, {"N": 3, "T": INT32}),
        ("IdentityN", [FLOAT32, BOOL], {"T": [FLOAT32, BOOL]}),
        ("ConcatV2", [FLOAT32, FLOAT32, INT32], {"N": 2, "T": FLOAT32, "Tidx": INT32}),
        ("Select", [BOOL, FLOAT32, FLOAT32], {"T": FLOAT32}),
        ("NoOp", [], {}),
    ],
)
def test_operands_say_their_number_and_their_types(
    op_type: str, operands: list[int], found: dict[str, Any]
) -> None:
    assert signature(op_type).attributes_of(operands) == found


@pytest.mark.parametrize(
    ("op_type", "count"), [("Mul", 1), ("Mul", 3), ("ConcatV2", 0), ("NoOp", 1)]
)
def test_a_wrong_number_of_operands_is_an_error(op_type: str, count: int) -> None:
    with pytest.raises(WuShardError, match=f"{op_type} does not take {count} operands"):
        signature(op_type).attributes_of([FLOAT32] * count)


@pytest.mark.parametrize(
    ("kind", "value", "written"),
    [
        ("int", 7, {"i": 7}),
        ("bool", True, {"b": True}),
        ("float", 0.5, {"f": 0.5}),
        ("type", FLOAT32, {"type": FLOAT32}),
        ("string", "sum", {"s": b"sum"}),
        ("string", b"\xff", {"s": b"\xff"}),
    ],
)
def test_a_value_is_written_into_the_field_of_its_kind(
    kind: str, value: Any, written: dict[str, Any]
) -> None:
    attribute = tf.compat.v1.AttrValue()
    write(attribute, kind, value)
    assert attribute == tf.compat.v1.AttrValue(**written)
    # Another one's is copied, whatever its kind.
    copied = tf.compat.v1.AttrValue()
    write(copied, "", attribute)
    assert copied == attribute


def test_shapes_and_lists_are_written_element_by_element() -> None:
    node = attributes(
        shape=("shape", (2, -1)),
        none=("shape", ()),
        ints=("list(int)", [1, 2]),
        texts=("list(string)", ["a", b"b"]),
        shapes=("list(shape)", [(3,), ()]),
    )
    assert [d.size for d in node["shape"].shape.dim] == [2, -1]
    assert node["none"].WhichOneof("value") == "shape" and not node["none"].shape.dim
    assert list(node["ints"].list.i) == [1, 2] and list(node["texts"].list.s) == [b"a", b"b"]
    assert [[d.size for d in s.dim] for s in node["shapes"].list.shape] == [[3], []]
