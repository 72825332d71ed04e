"""Equal matrix functions of variables cut alike are computed by turns, a lone one by all."""

from __future__ import annotations

import dataclasses
import math

import pytest

from tests.weight_update.plan.analyses import Weight, analysis_of
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.layout import tile_layout
from tf_wu_shard.preferences import Preferences
from tf_wu_shard.weight_update.analysis.types import (
    Analysis,
    FunctionValue,
    MatrixFunction,
    Operand,
    OperandKind,
)
from tf_wu_shard.weight_update.plan.planner import make_plan
from tf_wu_shard.weight_update.plan.stacks import StackMember, StackPlan
from tf_wu_shard.weight_update.plan.types import ShardingPlan

VALUE = FunctionValue(Operand(OperandKind.GRADIENT, index=0), 1, 64)
FUNCTION = MatrixFunction(0, 1, (VALUE,), (), (VALUE,), "program")


def with_functions(analysis: Analysis, *functions: tuple[MatrixFunction, ...]) -> Analysis:
    """The same; update number i has the i-th of these."""
    updates = [
        dataclasses.replace(update, functions=own)
        for update, own in zip(analysis.updates, functions, strict=True)
    ]
    return dataclasses.replace(analysis, updates=tuple(updates))


def matrices(*names: str, shape: tuple[int, ...] = (8, 8), replicas: int = 4) -> Analysis:
    """Matrices with a function each, all of one program."""
    analysis = analysis_of(
        [Weight(name, shape, (f"m_{name}",)) for name in names], replicas=replicas
    )
    return with_functions(analysis, *((FUNCTION,) for _ in names))


def plan_of(analysis: Analysis) -> ShardingPlan:
    return make_plan(analysis, ShardingOptions(), Preferences(min_elements=1, bucket_bytes=10**6))


def members_of(plan: ShardingPlan) -> list[list[tuple[str, int]]]:
    """Of each stack, for each member, the update's name and which of its functions it is."""
    return [[(m.update.name, m.number) for m in stack.members] for stack in plan.stacks]


def updates_of(stack: StackPlan) -> str:
    """The names of a stack's updates, one letter each."""
    return "".join(member.update.name for member in stack.members)


@pytest.mark.parametrize(
    ("count", "replicas", "each"), [(2, 4, 1), (4, 4, 1), (5, 4, 2), (3, 2, 2), (6, 2, 3)]
)
def test_a_stack_goes_round_the_replicas(count: int, replicas: int, each: int) -> None:
    analysis = matrices(*(f"w{n}" for n in range(count)), replicas=replicas)
    (stack,) = plan_of(analysis).stacks
    members = tuple(StackMember(update, 0) for update in analysis.updates)
    assert stack == StackPlan(members, each, by_turns=True)


def test_one_alone_is_computed_by_every_replica() -> None:
    analysis = matrices("w")
    (stack,) = plan_of(analysis).stacks
    assert stack == StackPlan((StackMember(analysis.updates[0], 0),), 1, by_turns=False)


def test_one_replica_computes_all_of_a_stack_where_it_is() -> None:
    assert [s.by_turns for s in plan_of(matrices("v", "w", replicas=1)).stacks] == [False]


def test_a_stack_is_filled_up_with_copies_of_its_first() -> None:
    v, w = matrices("v", "w").updates
    members = (StackMember(v, 0), StackMember(v, 1), StackMember(w, 0))
    stack = StackPlan(members, 2, by_turns=True)
    assert stack.turns(2) == (*members, members[0])


def test_what_differs_in_program_step_or_cut_is_no_stack() -> None:
    other = dataclasses.replace(FUNCTION, program="another")
    later = dataclasses.replace(FUNCTION, step=1)
    names = ("a", "b", "c", "d")
    for functions, stacks in [
        (((FUNCTION,), (other,), (FUNCTION,), (other,)), ["ac", "bd"]),
        (((FUNCTION,), (later,), (FUNCTION,), (FUNCTION,)), ["acd", "b"]),
    ]:
        plan = plan_of(with_functions(matrices(*names), *functions))
        assert [updates_of(stack) for stack in plan.stacks] == stacks
    shapes = [Weight("a", (8, 8), ("m",)), Weight("b", (8, 16), ("n",))]
    plan = plan_of(with_functions(analysis_of(shapes), (FUNCTION,), (FUNCTION,)))
    assert [updates_of(stack) for stack in plan.stacks] == ["a", "b"]


def test_functions_of_slots_are_one_stack_whatever_their_weights_are() -> None:
    """Roots of sides [64, 64] of matrices [64, 16] and [64, 32]; what has the matrices is two."""
    analysis = analysis_of([Weight("a", (64, 16), ("m",)), Weight("b", (64, 32), ("n",))])
    updates = []
    for update in analysis.updates:
        weight, slot = update.variables
        variables = (weight, dataclasses.replace(slot, shape=(64, 64)))
        size = math.prod(weight.shape)
        roots, steps = (
            MatrixFunction(0, 1, (dataclasses.replace(VALUE, size=4096),), (), (last,), name)
            for name, last in [
                ("root", dataclasses.replace(VALUE, size=4096)),
                ("step", dataclasses.replace(VALUE, size=size)),
            ]
        )
        own = dataclasses.replace(update, variables=variables, functions=(roots, steps))
        updates.append(own)
    plan = make_plan(
        dataclasses.replace(analysis, updates=tuple(updates)),
        ShardingOptions(),
        Preferences(
            min_elements=1,
            bucket_bytes=10**6,
            layout=lambda shape, width: tile_layout(shape, (4,), tuple(range(4))),
            weights_in_shards=True,
        ),
    )
    assert members_of(plan) == [[("a", 0), ("b", 0)], [("a", 1)], [("b", 1)]]


def test_gradients_behind_other_updates_have_stacks_of_their_own() -> None:
    analysis = matrices("a", "b", "c")
    reductions = [dataclasses.replace(r, depth=int(r.key == 1)) for r in analysis.reductions]
    plan = plan_of(dataclasses.replace(analysis, reductions=tuple(reductions)))
    assert [updates_of(stack) for stack in plan.stacks] == ["ac", "b"]


def test_what_is_left_alone_is_in_no_stack() -> None:
    analysis = analysis_of([Weight("a", (8, 8), ("m",)), Weight("b", (2, 2), ("n",))])
    analysis = with_functions(analysis, (FUNCTION,), (FUNCTION,))
    plan = make_plan(analysis, ShardingOptions(), Preferences(min_elements=16, bucket_bytes=10**6))
    assert [updates_of(stack) for stack in plan.stacks] == ["a"]


def test_several_functions_of_an_update_are_each_in_a_stack() -> None:
    later = dataclasses.replace(FUNCTION, step=1)
    analysis = matrices("a", "b")
    plan = plan_of(with_functions(analysis, (FUNCTION, later), (FUNCTION, later)))
    assert members_of(plan) == [[("a", 0), ("b", 0)], [("a", 1), ("b", 1)]]
