"""Takes what may run in vain out of a branch op, and leaves the rest of it a branch op.

    if finite: w -= g; table.scatter_sub(rows, h)

becomes

    w = select(finite, w - g, w)
    if finite: table.scatter_sub(rows, h)

A gradient of rows, or one op that must stay where it is, then keeps the variables that it changes
in the branch, and no others: an update goes or stays with all its slots. What both parts need is
computed outside, and handed to the branch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tf_wu_shard.graph.calls import callees, first_argument, rename
from tf_wu_shard.graph.nodes import control_inputs, copy_of
from tf_wu_shard.graph.op import Value, parse_value
from tf_wu_shard.graph.view import VariableRef
from tf_wu_shard.program.branch_body import BranchBody
from tf_wu_shard.program.branch_choice import branch_call
from tf_wu_shard.program.called_graph import CalledGraph
from tf_wu_shard.program.flat_functions import Places
from tf_wu_shard.program.fused_values import stand_in
from tf_wu_shard.program.inlining import Body
from tf_wu_shard.program.lifting import (
    OUTPUT_SHAPES,
    READ_ONLY,
    Function,
    of_values,
)
from tf_wu_shard.program.specialise import Specialiser


class Parts(NamedTuple):
    """A branch op in two.

    Attributes:
        apart: A branch op of its name that may be written out: it takes the values of variables and
            hands new ones back.
        finals: For each operand that is a variable which it may write, the result that is the new
            value, as a NodeDef names its operands.
        used: Its operands that are variables.
        rest: The branch op that stays; None where nothing does. It takes handles, and what the
            calls of the first one's branches yield beside its results (see
            `branch_choice.branch_call`).
        held: The operands of the whole op that are variables and that the rest takes.
        observes: Whether the rest has an effect that comes after a write that is written out, such
            as a Python function that looks at the variable.
    """

    apart: Any
    finals: Mapping[int, str]
    used: Mapping[int, VariableRef]
    rest: Any = None
    held: frozenset[int] = frozenset()
    observes: bool = False


def rest_of(op: str) -> str:
    """The name of what stays of a branch op."""
    return f"{op}/wu_shard_rest"


def in_two(
    node: Any,
    graph: CalledGraph,
    variables: Mapping[int, VariableRef],
    specialiser: Specialiser,
    staying: Places,
    of_lists: bool = False,
) -> Parts | None:
    """Takes a branch op apart.

    Args:
        node: Its NodeDef; never changed.
        graph: That which it stands in.
        variables: Its operands that are variables, by number.
        specialiser: Makes the functions.
        staying: What must not run in vain, beside what is seen here.
        of_lists: Whether its branches may be handed lists of rows, all or none.

    Returns:
        The parts; None where nothing can be taken out of it.
    """
    first = first_argument(node.op)
    count = len(node.attr["Tout"].list.type)
    refs = {slot - first: ref for slot, ref in variables.items()}
    names = [name for _, of_key in callees(node) for name in of_key]
    branches = []
    for number, name in enumerate(names):
        called = graph.inner(name, specialiser.functions)
        if called is None:
            return None
        own = {place.op for place in staying if place is not None and place.branch == number}
        body = called.body(count)
        if not own <= {inner.name for inner in body.nodes}:
            return None
        branches.append(BranchBody(called, body, refs, own, specialiser, of_lists))
    in_place = [argument for branch in branches for argument in branch.in_place]
    kept = {refs[argument].key for argument in in_place if in_place.count(argument) > 1}
    while sum(branch.mark(kept) for branch in branches):
        pass
    written = {a for branch in branches for a in branch.written if refs[a].key not in kept}
    if not written or any(branch.returns_one_of(written) for branch in branches):
        return None
    for branch in branches:
        branch.take_out(written)
    if any(branch.hands_a_handle for branch in branches):
        return None
    return _Splitting(node, branches, refs, sorted(written), specialiser).parts()


class _Splitting:
    """Makes the parts."""

    def __init__(
        self,
        node: Any,
        branches: Sequence[BranchBody],
        refs: Mapping[int, VariableRef],
        written: Sequence[int],
        specialiser: Specialiser,
    ) -> None:
        self._node = node
        self._branches = branches
        self._refs = refs
        self._written = written
        self._specialiser = specialiser

    def parts(self) -> Parts:
        """See `in_two`."""
        first = first_argument(self._node.op)
        taken = {a: self._refs[a] for b in self._branches for a in b.read_apart()}
        refs = {number: self._refs[number] for number in sorted({*taken, *self._written})}
        apart = self._like_whole(self._node.name, [self._apart(b, refs) for b in self._branches])
        apart.attr["Tout"].list.type[:] = [refs[number].dtype for number in self._written]
        apart.attr.pop("output_shapes", None)
        for number, ref in refs.items():
            apart.attr["Tin"].list.type[number] = ref.dtype
        finals = {
            number + first: str(Value(self._node.name, index))
            for index, number in enumerate(self._written)
        }
        rest, held = self._rest(first)
        used = {number + first: ref for number, ref in refs.items()}
        observes = any(branch.observes for branch in self._branches)
        return Parts(apart, finals, used, rest, held, observes)

    def _apart(self, branch: BranchBody, refs: Mapping[int, VariableRef]) -> str:
        """The name of the function of what is taken out of a branch."""
        body = branch.body
        nodes = branch.nodes(branch.apart | set(body.arguments))
        function = Function(nodes, body.arguments, tuple(map(str, branch.handed)))
        own = of_values(
            function, refs, self._specialiser.writing, lambda node, slot: False, fused=stand_in
        )
        results = [*(own.finals[number] for number in self._written), *own.results]
        new = Body(own.nodes, body.arguments, tuple(map(parse_value, results)), ())
        return self._specialiser.made(branch.called, new)

    def _rest(self, first: int) -> tuple[Any, frozenset[int]]:
        used = sorted({number for branch in self._branches for number in branch.used()})
        inputs = [self._node.input[number + first] for number in used]
        types = [self._node.attr["Tin"].list.type[number] for number in used]
        # Each branch is handed what it needs, and what the others do.
        handed: dict[tuple[int, Value], str] = {}
        placeholders = []
        for number, branch in enumerate(self._branches):
            for index, value in enumerate(branch.handed, start=len(self._written)):
                name = f"wu_shard_handed_{len(handed)}"
                handed[number, value] = name
                inputs.append(str(Value(branch_call(self._node.name, number), index)))
                types.append(branch.dtype_of(value))
                placeholder = tf.compat.v1.NodeDef(name=name, op="Placeholder")
                placeholder.attr["dtype"].type = types[-1]
                placeholders.append(placeholder)
        functions = []
        for number, branch in enumerate(self._branches):
            own = {value: handed[number, value] for value in branch.handed}
            arguments = [branch.body.arguments[argument] for argument in used]
            body = Body(
                [*branch.nodes(arguments), *placeholders, *branch.rest_nodes(own)],
                (*arguments, *(placeholder.name for placeholder in placeholders)),
                tuple(parse_value(own.get(value, str(value))) for value in branch.body.results),
                tuple(name for name in branch.rest if name in branch.body.control_outputs),
            )
            functions.append(self._specialiser.made(branch.called, body))
        rest = self._like_whole(rest_of(self._node.name), functions)
        rest.input[:] = [*self._node.input[:first], *inputs, *control_inputs(self._node)]
        rest.attr["Tin"].list.type[:] = types
        held = frozenset(number + first for number in used if number in self._refs)
        return rest, held

    def _like_whole(self, name: str, functions: Sequence[str]) -> Any:
        """A branch op like the whole one."""
        new = copy_of(self._node)
        new.name = name
        # These number operands, or say what results are like.
        for attribute in (READ_ONLY, OUTPUT_SHAPES):
            new.attr.pop(attribute, None)
        names = iter(functions)
        for key, of_key in callees(self._node):
            rename(new.attr[key], [next(names) for _ in of_key])
        return new
