"""What stands on a CPU for an op of one replica gives what the op gives on a TPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.emulation.definitions import FLOAT, function, node
from tf_wu_shard.emulation import attributes
from tf_wu_shard.emulation.clones import Clones, replicas_on
from tf_wu_shard.emulation.local_ops import LOCAL_OPS, RESULTS
from tf_wu_shard.tensorflow_private.function_graph import op_def

INT32 = attributes.dtype(3)

VALUE = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def made_of(own: Any, *constants: Any, devices: tuple[str, ...] = ("cpu0", "cpu1")) -> Clones:
    """What is made of an op for each replica; its operands are x0 and x1, y0 and y1."""
    program = {one.name: one for one in (own, *constants)}
    values = {name: [f"{name}{number}" for number, _ in enumerate(devices)] for name in "xy"}
    clones = Clones(program, replicas_on(devices), values.__getitem__, program)
    LOCAL_OPS[own.op](clones, own)
    return clones


def number(name: str, value: int) -> Any:
    return node(name, "Const", value=attributes.tensor(np.int32(value)), dtype=INT32)


def last_of_each(clones: Clones, name: str) -> list[Any]:
    """What stands for the op in each replica."""
    named = {one.name: one for one in clones.nodes}
    return [named[f"{replica.prefix}{name}"] for replica in clones.replicas]


def test_a_replica_knows_its_own_number_after_what_the_op_waited_for() -> None:
    found = last_of_each(made_of(node("id", "XlaReplicaId", "^id_waits")), "id")
    assert [tf.make_ndarray(one.attr["value"].tensor) for one in found] == [0, 1]
    assert [one.device for one in found] == ["cpu0", "cpu1"]
    assert [[*one.input] for one in found] == [["^id_waits"]] * 2


@pytest.mark.parametrize(("axis", "size"), [(0, 1), (1, 2), (2, 0)])
def test_beyond_a_dynamic_size_there_is_nothing(axis: int, size: int) -> None:
    own = node("cut", "XlaSetDynamicDimensionSize", "x", "axis:output:0", "y", "^late", T=FLOAT)
    clones = made_of(own, number("axis", axis), devices=("",))
    (cut,) = last_of_each(clones, "cut")
    assert [name for name in cut.input if name[0] == "^"] == ["^late"]
    cut.input.remove("^late")
    graph_def = tf.compat.v1.GraphDef()
    graph_def.library.function.add().CopyFrom(
        function("f", clones.nodes, ("x0", "y0"), {"out": "replica_0/cut:output:0"})
    )
    graph_def.library.function[0].signature.input_arg[1].type = tf.int32.as_datatype_enum
    call = graph_def.node.add(name="call", op="PartitionedCall", input=["x", "y"])
    call.attr["f"].func.name = "f"
    call.attr["Tin"].list.type.extend([FLOAT.type, INT32.type])
    call.attr["Tout"].list.type.append(FLOAT.type)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        given = {"x": tf.constant(VALUE), "y": tf.constant(size)}
        (result,) = tf.graph_util.import_graph_def(graph_def, given, ["call:0"])
        found = session.run(result)
    np.testing.assert_array_equal(found, VALUE.take(range(size), axis))


@pytest.mark.parametrize("op_type", ["XlaSetBound", "XlaSharding"])
def test_a_hint_to_the_compiler_passes_its_first_operand_on(op_type: str) -> None:
    given = {"T": FLOAT} if op_type == "XlaSharding" else {}
    for one, value in zip(
        last_of_each(made_of(node("hint", op_type, "x", "y", "^late", **given)), "hint"),
        ("x0", "x1"),
        strict=True,
    ):
        assert (one.op, [*one.input]) == ("Identity", [value, "^late"])
        # A bound is of whole numbers, of which the op says no type.
        assert one.attr["T"] == (FLOAT if given else INT32)


def test_a_barrier_passes_all_its_operands_on() -> None:
    types = attributes.dtypes([FLOAT.type, INT32.type])
    own = node("barrier", "XlaOptimizationBarrier", "x", "y", "^late", T=types)
    found = last_of_each(made_of(own), "barrier")
    assert [[*one.input] for one in found] == [["x0", "y0", "^late"], ["x1", "y1", "^late"]]
    assert {one.op for one in found} == {"IdentityN"} and found[0].attr["T"] == types


@pytest.mark.parametrize("op_type", LOCAL_OPS)
def test_what_an_op_returns_is_read_by_the_name_that_its_stand_in_has_for_it(op_type: str) -> None:
    own = node("own", op_type, "x", "axis:output:0", "y", T=attributes.dtypes([1, 3, 3]))
    if op_type == "XlaReplicaId":
        del own.input[:]
    (stands, _) = last_of_each(made_of(own, number("axis", 0)), "own")
    names = []
    for definition in (op_def(op_type), op_def(stands.op)):
        assert definition is not None
        names.append(definition.output_arg[0].name)
    assert RESULTS.get(op_type, (names[0],) * 2) == (*names,)
