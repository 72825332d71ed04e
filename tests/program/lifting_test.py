"""Loops, branches and functions take the values of variables that they only read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.program.nodes import nodes, written
from tf_wu_shard.graph.view import VariableRef
from tf_wu_shard.program.lifting import Function, HandleNeededError, of_values, taking_values

RESOURCE, FLOAT = 20, 1
W = VariableRef("w", 0, 4, (3, 5), FLOAT, mirrored=True, device="", trainable=True)


def specialise(
    name: str, arguments: Mapping[int, VariableRef], handed_back: tuple[int, ...]
) -> str:
    taken = ", ".join(f"{n}: {ref.key}" for n, ref in arguments.items())
    return f"{name}({taken})" + "".join(f" -> {n}" for n in handed_back)


def reads(node: Any, slot: int) -> bool:
    return False


def writes(node: Any, slot: int) -> bool:
    return True


def test_a_branch_op_names_functions_of_values_and_says_what_it_takes() -> None:
    (op,) = nodes("c = If(p, x, w) {then_branch=&yes else_branch=&no Tin=1,20}")
    op.attr["_read_only_resource_inputs"].list.i.append(2)
    new, _ = taking_values(op, {2: W}, specialise)
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
    new, _ = taking_values(op, {1: W}, specialise)
    assert (new.attr["cond"].func.name, new.attr["body"].func.name) == ("more(1: w)", "turn(1: w)")
    assert list(new.attr["T"].list.type) == [FLOAT, FLOAT]
    shapes = new.attr["output_shapes"].list.shape
    assert [[dim.size for dim in shape.dim] for shape in shapes] == [[], [3, 5]]


def test_every_branch_of_a_case_is_made_anew() -> None:
    (op,) = nodes("c = Case(i, w) {Tin=20}")
    for name in ("a", "b", "c"):
        op.attr["branches"].list.func.add().name = name
    new, _ = taking_values(op, {1: W}, specialise)
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
    found = {node.name: node for node in of_values(function, {1: W}, specialise, reads).nodes}
    assert written(found.values()) == [
        "again = Identity(w)",
        "other = Identity(w)",
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
    _, call = of_values(function, {0: W}, specialise, reads).nodes
    assert call.attr["f"].func.name == "g(0: w)"
    assert list(call.attr["Tin"].list.type) == [FLOAT]


def test_writes_in_a_function_make_the_value_that_later_ops_see() -> None:
    function = Function(
        nodes(
            """
            x = Placeholder() {dtype=1}
            w = Placeholder() {dtype=20}
            add = AssignAddVariableOp(w, x) {dtype=1}
            read = ReadVariableOp(w) {dtype=1} ^add
            set = AssignVariableOp(w, read) {dtype=1} ^read
            take = AssignSubVariableOp(w, x) {dtype=1} ^set
            last = ReadVariableOp(w) {dtype=1} ^take
            """
        ),
        ("x", "w"),
        ("last", "w"),
    )
    found = of_values(function, {1: W}, specialise, writes)
    assert written(found.nodes) == [
        "add = AddV2(w, x)",
        "last = Identity(take, ^take)",
        "read = Identity(add, ^add)",
        "set = Identity(read, ^read)",
        "take = Sub(set, x, ^set)",
        "w = Placeholder()",
        "x = Placeholder()",
    ]
    assert found.finals == {1: "take"}
    assert found.results == ("last", "take")


def test_a_branch_hands_a_value_back_as_a_further_result_and_a_loop_in_its_place() -> None:
    function = Function(
        nodes(
            """
            w = Placeholder() {dtype=20}
            c = If(p, w) {then_branch=&yes else_branch=&no Tin=20 Tout=1,3}
            loop = While(i, w) {cond=&more body=&turn T=3,20}
            read = ReadVariableOp(w) {dtype=1} ^loop
            end = ReadVariableOp(loop:1) {dtype=1}
            """
        ),
        ("w",),
    )
    found = of_values(function, {0: W}, specialise, writes)
    by_name = {node.name: node for node in found.nodes}
    assert by_name["c"].attr["then_branch"].func.name == "yes(0: w) -> 0"
    assert list(by_name["c"].attr["Tout"].list.type) == [1, 3, FLOAT]
    assert list(by_name["loop"].input) == ["i", "c:2"]
    assert by_name["loop"].attr["body"].func.name == "turn(1: w)"
    assert list(by_name["read"].input) == ["loop:1", "^loop"]
    assert list(by_name["end"].input) == ["loop:1"]
    assert found.finals == {0: "loop:1"}


def test_what_only_reads_hands_nothing_back() -> None:
    function = Function(
        nodes(
            """
            w = Placeholder() {dtype=20}
            c = If(p, w) {then_branch=&yes else_branch=&no Tin=20 Tout=1}
            """
        ),
        ("w",),
    )
    found = of_values(function, {0: W}, specialise, reads)
    assert list(found.nodes[1].attr["Tout"].list.type) == [FLOAT]
    assert found.finals == {0: "w"}


@pytest.mark.parametrize(
    "op",
    ["ResourceApplyGradientDescent(w, x, x)", "Pack(x, w)", "If(p, w, w) {then_branch=&f Tin=20}"],
)
def test_what_needs_the_handle_itself_is_said(op: str) -> None:
    function = Function(nodes(f"w = Placeholder() {{dtype=20}}\nodd = {op}"), ("w",))
    with pytest.raises(HandleNeededError, match="odd"):
        of_values(function, {0: W}, specialise, writes)
