"""Functions without calls and branches: what they call is written out, of branches both.

Of what the branches of an op return, the op's predicate selects. All of it runs, whichever branch
is taken, so it has to be such that it may (see `speculation`): this module checks the ops, a caller
the sizes of what they are given in its graph.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tf_wu_shard import refusals
from tf_wu_shard.graph.calls import BRANCHES, IFS, PLAIN_CALLS, callee_names
from tf_wu_shard.graph.nodes import data_inputs, with_values, without_controls
from tf_wu_shard.graph.op import Value, parse_value
from tf_wu_shard.program.branch_choice import BranchChoice, Result, branch_number, select_of
from tf_wu_shard.program.called_graph import CalledGraph, Shape
from tf_wu_shard.program.compiled_calls import is_compiled, not_compiled_again, unmark
from tf_wu_shard.program.fused_values import stood_for
from tf_wu_shard.program.inlining import Body, inline
from tf_wu_shard.program.row_lists import RowLists, Select
from tf_wu_shard.program.speculation import RunsInVainError, check_ops
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.rules.writes import writes_rows
from tf_wu_shard.tensorflow_private.graph_rebuilding import traced_name

_NONE: Mapping[str, Any] = {}


class Place(NamedTuple):
    """Where an op stands in the branches of another: the branch's number, and its name there."""

    branch: int
    op: str


# Where in the branches of an op something stands that is not to run in vain, and why not; None for
# what is not one op of a branch.
Places = dict[Place | None, Refusal]


class WrittenOut(NamedTuple):
    """Nodes in which calls and branches were written out.

    Attributes:
        nodes: The nodes; some are the old ones: not to be changed. In place of a branch op stands
            one of its name that waits for what the op waited for.
        values: What stands for the results that are gone.
        shapes: What TensorFlow inferred of the shapes of the results of what was added, by name.
        selections: Names of those of what was added that select what a branch yields.
        origins: For what was added of the function that a call or a branch of an op runs, by name,
            the call (see `branch_choice`) and the name there.
        of_lists: Names of those of what was added that are made of lists of rows.
    """

    nodes: tuple[Any, ...]
    values: dict[Value, Value]
    shapes: dict[str, tuple[Shape, ...]]
    selections: frozenset[str]
    origins: dict[str, tuple[str, str]]
    of_lists: frozenset[str] = frozenset()

    def select(self, op: str) -> Select:
        """What selects by whether the branch of a condition is taken that an op stood in.

        Args:
            op: The name of one of what was added.
        """
        call, _ = self.origins[op]
        return select_of(call)

    def place(self, branching: str, op: str) -> Place | None:
        """Where an op that was added stood.

        Args:
            branching: The name of the branch op that was written out.
            op: The op's name.
        """
        call, inner = self.origins.get(op, ("", ""))
        number = branch_number(branching, call)
        return None if number is None else Place(number, inner)


class _Flat(NamedTuple):
    """A function, as `WrittenOut`, and the numbers of its arguments that are lists of rows."""

    body: Body
    shapes: dict[str, tuple[Shape, ...]]
    selections: frozenset[str]
    of_lists: frozenset[str]
    lists: tuple[int, ...]

    def result(self, index: int) -> Shape:
        value = self.body.results[index]
        return self.shapes[value.op][value.index]


class FlatFunctions:
    """Writes functions out."""

    def __init__(
        self,
        made: Mapping[str, Any],
        adopt: Callable[[Any], None],
        *,
        recompiled: bool | None = None,
    ) -> None:
        """Prepares to.

        Args:
            made: Functions made since the trace, by name.
            adopt: Makes a new NodeDef part of the program that the nodes are in.
            recompiled: Whether what XLA compiles of what is called is handed to it again in the
                end; None where it compiles the whole program.
        """
        self._made = made
        self._adopt = adopt
        self._recompiled = recompiled

    def write_out(
        self,
        nodes: Sequence[Any],
        chosen: Collection[str],
        graph: CalledGraph,
        results: Iterable[Value],
        values_of: Collection[int] = (),
        *,
        around: Mapping[str, Any] = _NONE,
        checked: bool = True,
    ) -> WrittenOut:
        """Writes calls and branch ops out, with all that they call.

        Args:
            nodes: NodeDefs; never changed.
            chosen: Names of the calls and branch ops.
            graph: That whose ops call the functions.
            results: What the nodes' function returns, or what is around them takes.
            values_of: Numbers of the arguments of a condition's branches that are no variables, and
                may be lists of rows.
            around: The NodeDefs beside these, by name, of which nothing is changed.
            checked: Whether it is checked that what plain calls run may run in vain; False where
                that is done with what is around them.

        Raises:
            RunsInVainError: If something must not run where it is not taken, or it is
                not known what a function does.
        """
        taken = {parse_value(text) for node in nodes for text in data_inputs(node)}
        taken.update(results)
        bodies: dict[str, _Flat] = {}
        values: dict[Value, Value] = {}
        shapes: dict[str, tuple[Shape, ...]] = {}
        selections: set[str] = set()
        of_lists: set[str] = set()
        beside = {node.name: node for node in nodes}
        written: list[Any] = []
        for node in nodes:
            if node.name not in chosen:
                written.append(node)
                continue
            choice = None if node.op in PLAIN_CALLS else BranchChoice(node, self._adopt)
            calls = [node] if choice is None else choice.calls
            dtypes = node.attr["Tout"].list.type if "Tout" in node.attr else ()
            count = len(dtypes)
            may_be = values_of if node.op in IFS else ()
            check = checked or choice is not None
            names = [call.attr["f"].func.name for call in calls]
            called = [self._called(graph, name, count, may_be, checked=check) for name in names]
            if self._recompiled is not None and is_compiled(node):
                self._check_compiled(node, called[0].body)
            bodies |= {call.name: flat for call, flat in zip(calls, called, strict=True)}
            written += calls
            if choice is not None:
                used = [index for index in range(count) if Value(node.name, index) in taken]
                of_results = {i: Result(dtypes[i], _common_shape(called, i)) for i in used}
                added = choice.selection(of_results, values, shapes)
                selections |= {new.name for new in added if new.op == "SelectV2"}
                written += added
                written += choice.handing_lists(
                    [flat.lists for flat in called], lambda name: beside.get(name, around.get(name))
                )
                written.append(choice.done())
        inlined = inline(
            [with_values(node, values) for node in written],
            {name: flat.body for name, flat in bodies.items()},
            self._adopted,
            around,
        )
        for name, (call, inner) in inlined.origins.items():
            shapes[name] = bodies[call].shapes[inner]
            if inner in bodies[call].selections:
                selections.add(name)
            if inner in bodies[call].of_lists:
                of_lists.add(name)
        values |= {old: inlined.value(old) for old in inlined.values}
        values = {old: values.get(new, new) for old, new in values.items()}
        kept = {node.name for node in written} | inlined.origins.keys()
        # What was written out has no effects, so that nothing in it has to wait.
        out = (
            without_controls(node) if node.name in inlined.origins else node
            for node in inlined.nodes
            if node.name in kept
        )
        origins = dict(inlined.origins)
        return WrittenOut(
            tuple(out), values, shapes, frozenset(selections), origins, frozenset(of_lists)
        )

    def check(self, graph: CalledGraph, node: Any) -> None:
        """Checks that what a call or branch op runs may run in vain.

        Args:
            graph: That which the op stands in.
            node: Its NodeDef.

        Raises:
            RunsInVainError: If it must not, or it is not known what a function does.
        """
        for name in callee_names(node):
            self._called(graph, name, len(node.attr["Tout"].list.type))

    def _adopted(self, new: Any) -> None:
        if self._recompiled is None:
            unmark(new)
        self._adopt(new)

    def _check_compiled(self, call: Any, body: Body) -> None:
        """Raises RunsInVainError if XLA is to compile what a call runs in one piece, or not at all.

        It rounds otherwise than the kernels do.
        """
        of_rows = any(writes_rows(stood_for(node)[0]) for node in body.nodes)
        if not self._recompiled or of_rows or not_compiled_again(body.nodes) is not None:
            name = traced_name(call.attr["f"].func.name)
            raise RunsInVainError(refusals.Branches.BRANCH_COMPILED.at(function=name))

    def _called(
        self,
        graph: CalledGraph,
        name: str,
        count: int,
        values_of: Collection[int] = (),
        *,
        checked: bool = True,
    ) -> _Flat:
        """A function as it was called, without calls and branches.

        Args:
            graph: That whose ops call it.
            name: Its name.
            count: How many results it had then; what was made since has those it was made with.
            values_of: See `write_out`.
            checked: Whether it is checked that it may run in vain.
        """
        called = graph.inner(name, self._made)
        if called is None:
            raise RunsInVainError(refusals.Branches.BRANCH_DEFINITION_ONLY.at(function=name))
        body = called.body(None if name in self._made else count)
        chosen = {node.name for node in body.nodes if node.op in (*PLAIN_CALLS, *BRANCHES)}
        out = self.write_out(body.nodes, chosen, called, body.results, checked=False)
        shapes = dict(out.shapes)
        for node in body.nodes:
            if node.name not in chosen:
                results = range(called.num_results(node.name))
                shapes[node.name] = tuple(called.static_shape(node.name, i) for i in results)
        nodes = [without_controls(node) for node in out.nodes if node.op != "NoOp"]
        numbers = {body.arguments[number]: number for number in values_of}
        lists = RowLists(nodes, numbers, lambda op, i: (*shapes.get(op, ()), None)[i], stood_for)
        if checked:
            check_ops(nodes, lists)
        returned = tuple(out.values.get(value, value) for value in body.results)
        remade = Body(nodes, body.arguments, returned, ())
        handed = tuple(sorted(numbers[name] for name in lists.arguments))
        return _Flat(remade, shapes, out.selections, frozenset(lists.made), handed)


def _common_shape(branches: Sequence[_Flat], index: int) -> Shape:
    """The shape that TensorFlow inferred of what all branches yield; None where it did not."""
    shapes = {flat.result(index) for flat in branches}
    return shapes.pop() if len(shapes) == 1 else None
