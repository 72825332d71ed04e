"""Loops, branches and functions take the values of variables that they only read."""

from __future__ import annotations

from collections.abc import Mapping

from tests.program.nodes import nodes, written
from tf_wu_shard.graph.view import VariableRef
from tf_wu_shard.program.lifting import Function, taking_values, with_values

RESOURCE, FLOAT = 20, 1
W = VariableRef("w", 0, 4, (3, 5), FLOAT, mirrored=True, device="", trainable=True)


def specialise(name: str, arguments: Mapping[int, VariableRef]) -> str:
    return f"{name}({', '.join(f'{n}: {ref.key}' for n, ref in arguments.items())})"


def test_a_branch_op_names_functions_of_values_and_says_what_it_takes() -> None:
    (op,) = nodes("c = If(p, x, w) {then_branch=&yes else_branch=&no Tin=1,20}")
    op.attr["_read_only_resource_inputs"].list.i.append(2)
    new = taking_values(op, {2: W}, specialise)
    assert new.attr["then_branch"].func.name == "yes(1: w)"
    assert new.attr["else_branch"].func.name == "no(1: w)"
    assert list(new.attr["Tin"].list.type) == [FLOAT, FLOAT]
    assert list(new.attr["_read_only_resource_inputs"].list.i) == []
    assert list(op.attr["Tin"].list.type) == [FLOAT, RESOURCE]


def test_a_loop_says_the_shape_of_the_value_that_it_carries() -> None:
    (op,) = nodes("loop = While(i, w) {cond=&more body=&turn}")
    op.attr["T"].list.type.extend([FLOAT, RESOURCE])
    for _ in range(2):
        op.attr["output_shapes"].list.shape.add()
    new = taking_values(op, {1: W}, specialise)
    assert (new.attr["cond"].func.name, new.attr["body"].func.name) == ("more(1: w)", "turn(1: w)")
    assert list(new.attr["T"].list.type) == [FLOAT, FLOAT]
    shapes = new.attr["output_shapes"].list.shape
    assert [[dim.size for dim in shape.dim] for shape in shapes] == [[], [3, 5]]


def test_every_branch_of_a_case_is_made_anew() -> None:
    (op,) = nodes("c = Case(i, w) {Tin=20}")
    for name in ("a", "b", "c"):
        op.attr["branches"].list.func.add().name = name
    new = taking_values(op, {1: W}, specialise)
    assert [f.name for f in new.attr["branches"].list.func] == ["a(0: w)", "b(0: w)", "c(0: w)"]


def test_in_a_function_reads_become_the_argument_itself() -> None:
    function = Function(
        nodes(
            """
            x = Placeholder() {dtype=1}
            w = Placeholder() {dtype=20}
            again = Identity(w)
            read = ReadVariableOp(w) {dtype=1} ^x
            other = ReadVariableOp(again) {dtype=1}
            sum = AddV2(read, other)
            """
        ),
        ("x", "w"),
    )
    found = {node.name: node for node in with_values(function, {1: W}, specialise)}
    assert written(found.values()) == [
        "again = Identity(w)",
        "other = Identity(again)",
        "read = Identity(w, ^x)",
        "sum = AddV2(read, other)",
        "w = Placeholder()",
        "x = Placeholder()",
    ]
    assert found["w"].attr["dtype"].type == FLOAT
    assert [dim.size for dim in found["w"].attr["shape"].shape.dim] == [3, 5]
    assert {found[name].attr["T"].type for name in ("again", "read", "other")} == {FLOAT}


def test_functions_called_inside_take_the_value_too() -> None:
    function = Function(
        nodes(
            """
            w = Placeholder() {dtype=20}
            y = StatefulPartitionedCall(w) {f=&g Tin=20}
            """
        ),
        ("w",),
    )
    _, call = with_values(function, {0: W}, specialise)
    assert call.attr["f"].func.name == "g(0: w)"
    assert list(call.attr["Tin"].list.type) == [FLOAT]
