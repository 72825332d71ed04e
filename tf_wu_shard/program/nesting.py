"""The branches and loop bodies of a TPU program in which replicas sum something.

Each is a graph of its own, in which the enclosing graph's values and variables are arguments. An
update that stands in one is found, shared and rewritten there. A branch beside it counts too: what
it reads may be shared in the other one. All replicas take the same branch, or they could not sum.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from tf_wu_shard.graph.calls import IFS, LOOPS, callees, first_argument, is_call
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.tpu.ops import is_in
from tf_wu_shard.program.called_graph import CalledGraph
from tf_wu_shard.program.flatten import SUMS, reaching
from tf_wu_shard.program.inside import differs, view_inside
from tf_wu_shard.program.prepare import prepared
from tf_wu_shard.rules.variables import READ, Access
from tf_wu_shard.step.accesses import access_by_callee, accesses
from tf_wu_shard.step.capture import Captured


@dataclasses.dataclass(frozen=True)
class Nested:
    """A branch or a loop's body.

    Attributes:
        op: Name of the loop or branch op in the enclosing graph.
        attribute: The op's attribute that names the function.
        number: Which of the functions that the attribute names.
        name: The function's name.
        graph: Its graph.
        captured: Its graph, and the variables that reach it as arguments.
        arguments: Names of its arguments' Placeholders, in order.
        operands: For each argument, what the op hands over.
        inner: The branches and bodies in it.
        is_agreed: Whether all replicas are sure to take the same turn at the op.
    """

    op: str
    attribute: str
    number: int
    name: str
    graph: CalledGraph
    captured: Captured
    arguments: tuple[str, ...]
    operands: tuple[Value, ...]
    inner: tuple[Nested, ...]
    is_agreed: bool

    def handle(self, key: str) -> str | None:
        """The argument through which a variable enters, or None."""
        for name, ref in self.captured.view.variables.items():
            if ref.key == key:
                return name
        return None


@dataclasses.dataclass(frozen=True)
class Looking:
    """Which branches and bodies to look at, and how.

    Attributes:
        op_types: Types of ops that those have in them, or in what they call.
        prepare: Does to the graph of one what is done to the program's, as `prepared` does.
    """

    op_types: frozenset[str]
    prepare: Callable[[CalledGraph, Captured, str, int], Captured]


def nested_programs(
    graph: CalledGraph,
    captured: Captured,
    program: str,
    num_replicas: int,
    looking: Looking | None = None,
) -> tuple[Nested, ...]:
    """Finds them.

    Args:
        graph: The function that holds the TPU program, or a Nested's.
        captured: Its graph, flattened, and variables.
        program: Name of the TPU program, or "" where all of the graph is inside of it.
        num_replicas: How many replicas run the program.
        looking: What to look for; None for what the replicas of a TPU sum.
    """
    view = captured.view
    looking = looking or Looking(SUMS, prepared)
    wanted = reaching(view, looking.op_types)
    found: list[Nested] = []
    for op in view:
        here = is_in(op.node, program)
        if not is_call(op.type) or not here or op.name in view.part_wise:
            continue
        called_by = callees(op.node)
        if not any(wanted(name) for _, names in called_by for name in names):
            continue
        for attribute, names in called_by:
            if op.type in LOOPS and attribute != "body":
                continue
            for number, name in enumerate(names):
                called = graph.inner(name, captured.functions)
                nested = called and _nested(captured, op, called, name, num_replicas, looking)
                if nested:
                    found.append(dataclasses.replace(nested, attribute=attribute, number=number))
    return tuple(found)


def _nested(
    captured: Captured,
    op: Op,
    called: CalledGraph,
    name: str,
    num_replicas: int,
    looking: Looking,
) -> Nested | None:
    view = view_inside(captured, op, called, name, num_replicas)
    if view is None:
        return None
    own = looking.prepare(called, dataclasses.replace(captured, view=view), "", num_replicas)
    inner = nested_programs(called, own, "", num_replicas, looking)
    agreed = op.type not in IFS or not differs(captured.view, num_replicas)(op.inputs[0])
    operands = op.inputs[first_argument(op.type) :]
    arguments = called.body(0).arguments
    return Nested(op.name, "", 0, name, called, own, arguments, operands, inner, agreed)


def everything(nested: tuple[Nested, ...]) -> Iterator[tuple[Nested, tuple[Nested, ...]]]:
    """All branches and bodies, inner ones first, each with those that it lies in, from outside."""

    def walk(
        found: tuple[Nested, ...], around: tuple[Nested, ...]
    ) -> Iterator[tuple[Nested, tuple[Nested, ...]]]:
        for one in found:
            yield from walk(one.inner, (*around, one))
            yield one, around

    return walk(nested, ())


def uses(captured: Captured, nested: tuple[Nested, ...]) -> dict[str, bool]:
    """What a graph does to the variables of a program, not counting what lies in `nested`.

    Args:
        captured: The graph and variables.
        nested: The branches and bodies in it, which are looked at on their own.

    Returns:
        For each variable that it uses, by key, whether it only reads its value.
    """
    own = {(n.op, n.attribute, n.number) for n in nested}
    view = captured.view
    found: dict[str, bool] = {}
    for handle, ref in view.variables.items():
        for access in accesses(view, handle):
            op = access.op
            if any(n.op == op.name for n in nested):
                for slot, value in enumerate(op.inputs):
                    if value.op == handle and not _is_ignored(view, op, slot, own):
                        found[ref.key] = False
            elif access.access is not Access.PASSED_ON:
                found[ref.key] = found.get(ref.key, True) and op.type == READ
    return found


def _is_ignored(view: GraphView, op: Op, slot: int, nested: set[tuple[str, str, int]]) -> bool:
    """Whether the functions of an op that are not in `nested` ignore an operand."""
    argument = slot - first_argument(op.type)
    return argument >= 0 and all(
        access_by_callee(view, name, argument) is Access.PASSED_ON
        for attribute, names in callees(op.node)
        for number, name in enumerate(names)
        if (op.name, attribute, number) not in nested
    )
