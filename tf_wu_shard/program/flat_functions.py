"""Functions without calls and branches: what they call is written out, of branches both.

Of what the branches of an op return, the op's predicate selects. All of it runs, whichever branch
is taken, so it has to be such that it may (see `speculation`): this module checks the ops, a caller
the sizes of what they are given in its graph.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tf_wu_shard import refusals
from tf_wu_shard.dtypes import BOOL, INT32
from tf_wu_shard.graph.calls import BRANCHES, IFS, PLAIN_CALLS, callee_names
from tf_wu_shard.graph.nodes import (
    control_inputs,
    data_inputs,
    with_values,
    without_controls,
)
from tf_wu_shard.graph.op import Value, parse_value
from tf_wu_shard.program.called_graph import CalledGraph, Shape
from tf_wu_shard.program.compiled_calls import is_compiled, not_compiled_again, unmark
from tf_wu_shard.program.inlining import Body, inline
from tf_wu_shard.program.speculation import RunsInVainError, check_ops
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.tensorflow_private.graph_rebuilding import traced_name

# What its branches are called, after the op's name and before their numbers.
BRANCH = "wu_shard_branch_"


def branch_call(op: str, number: int) -> str:
    """The name of what calls a branch of an op that is written out."""
    return f"{op}/{BRANCH}{number}"


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
            the call (see `branch_call`) and the name there.
    """

    nodes: tuple[Any, ...]
    values: dict[Value, Value]
    shapes: dict[str, tuple[Shape, ...]]
    selections: frozenset[str]
    origins: dict[str, tuple[str, str]]

    def place(self, branching: str, op: str) -> Place | None:
        """Where an op that was added stood.

        Args:
            branching: The name of the branch op that was written out.
            op: The op's name.
        """
        call, inner = self.origins.get(op, ("", ""))
        number = call.removeprefix(f"{branching}/{BRANCH}")
        return Place(int(number), inner) if number.isdecimal() else None


class _Flat(NamedTuple):
    """A function, as `WrittenOut`."""

    body: Body
    shapes: dict[str, tuple[Shape, ...]]
    selections: frozenset[str]

    def result(self, index: int) -> Shape:
        value = self.body.results[index]
        return self.shapes[value.op][value.index]


class _Result(NamedTuple):
    """A result of a branch op: its DataType number, and its shape as far as it is known."""

    dtype: int
    shape: Shape


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
    ) -> WrittenOut:
        """Writes calls and branch ops out, with all that they call.

        Args:
            nodes: NodeDefs; never changed.
            chosen: Names of the calls and branch ops.
            graph: That whose ops call the functions.
            results: What the nodes' function returns.

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
        written: list[Any] = []
        for node in nodes:
            if node.name not in chosen:
                written.append(node)
                continue
            calls = [node] if node.op in PLAIN_CALLS else self._branch_calls(node)
            dtypes = node.attr["Tout"].list.type if "Tout" in node.attr else ()
            count = len(dtypes)
            own = [self._called(graph, call.attr["f"].func.name, count) for call in calls]
            if self._recompiled is not None and is_compiled(node):
                self._check_compiled(node, own[0].body)
            bodies |= {call.name: flat for call, flat in zip(calls, own, strict=True)}
            written += calls
            if node.op not in PLAIN_CALLS:
                used = [index for index in range(count) if Value(node.name, index) in taken]
                of_results = {i: _Result(dtypes[i], _common_shape(own, i)) for i in used}
                added = self._selection(node, calls, of_results, values, shapes)
                selections |= {new.name for new in added if new.op == "SelectV2"}
                written += added
                written.append(self._new(node, node.name, "NoOp", control_inputs(node)))
        inlined = inline(
            [with_values(node, values) for node in written],
            {name: flat.body for name, flat in bodies.items()},
            self._adopted,
        )
        for name, (call, inner) in inlined.origins.items():
            shapes[name] = bodies[call].shapes[inner]
            if inner in bodies[call].selections:
                selections.add(name)
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
        return WrittenOut(tuple(out), values, shapes, frozenset(selections), origins)

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
        if not self._recompiled or not_compiled_again(body.nodes) is not None:
            name = traced_name(call.attr["f"].func.name)
            raise RunsInVainError(refusals.Branches.BRANCH_COMPILED.at(function=name))

    def _called(self, graph: CalledGraph, name: str, count: int) -> _Flat:
        """As `_function`; what was made since the trace has the results that it was made with."""
        return self._function(graph, name, None if name in self._made else count)

    def _function(self, graph: CalledGraph, name: str, count: int | None) -> _Flat:
        """A function of so many results, None for all, without calls and branches."""
        called = graph.inner(name, self._made)
        if called is None:
            raise RunsInVainError(refusals.Branches.BRANCH_DEFINITION_ONLY.at(function=name))
        body = called.body(count)
        chosen = {node.name for node in body.nodes if node.op in (*PLAIN_CALLS, *BRANCHES)}
        out = self.write_out(body.nodes, chosen, called, body.results)
        shapes = dict(out.shapes)
        for node in body.nodes:
            if node.name not in chosen:
                results = range(called.num_results(node.name))
                shapes[node.name] = tuple(called.static_shape(node.name, i) for i in results)
        nodes = [without_controls(node) for node in out.nodes if node.op != "NoOp"]
        check_ops(nodes)
        returned = tuple(out.values.get(value, value) for value in body.results)
        return _Flat(Body(nodes, body.arguments, returned, ()), shapes, out.selections)

    def _branch_calls(self, node: Any) -> list[Any]:
        """A call of each branch of an op, in place of it."""
        calls: list[Any] = []
        for name in callee_names(node):
            called = branch_call(node.name, len(calls))
            call = self._new(node, called, "PartitionedCall", node.input[1:])
            for attribute in ("Tin", "Tout"):
                if attribute in node.attr:
                    call.attr[attribute].CopyFrom(node.attr[attribute])
            call.attr["f"].func.name = name
            calls.append(call)
        return calls

    def _tests(self, node: Any, num_branches: int) -> list[Any]:
        """What decides whether a branch is taken, two ops each; the last one is if no other is."""
        tests = []
        for number in range(num_branches - 1):
            scope = f"{node.name}/wu_shard_taken_{number}"
            if node.op in IFS:
                if "Tcond" not in node.attr or node.attr["Tcond"].type != BOOL:
                    raise RunsInVainError(refusals.Branches.BRANCH_NO_TRUTH_VALUE.at())
                test = self._new(node, scope, "Identity", [node.input[0]])
                test.attr["T"].type = BOOL
                tests.append(test)
                continue
            own = self._new(node, f"{scope}/number", "Const", [])
            own.attr["dtype"].type = INT32
            own.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(number, tf.int32))
            test = self._new(node, scope, "Equal", [node.input[0], own.name])
            test.attr["T"].type = INT32
            tests += [own, test]
        return tests

    def _selection(
        self,
        node: Any,
        calls: list[Any],
        of_results: Mapping[int, _Result],
        values: dict[Value, Value],
        shapes: dict[str, tuple[Shape, ...]],
    ) -> list[Any]:
        """What selects the results of a branch op out of those of its branches.

        Args:
            node: The op.
            calls: The calls of its branches.
            of_results: Those of its results that are needed, by number.
            values: Where to note what stands for the results.
            shapes: Where to note the shapes of what is added.

        Raises:
            RunsInVainError: If it yields no tensor of numbers.
        """
        for dtype in (tf.as_dtype(result.dtype) for result in of_results.values()):
            if not (dtype.is_floating or dtype.is_integer or dtype.is_bool):
                raise RunsInVainError(
                    refusals.Branches.BRANCH_YIELDS_NO_NUMBERS.at(dtype=dtype.name)
                )
        tests = self._tests(node, len(calls))
        shapes |= {test.name: ((),) for test in tests}
        added = [*tests]
        for index, result in of_results.items():
            # An op may have one branch, which is taken whatever the predicate is.
            values[Value(node.name, index)] = Value(calls[-1].name, index)
            selects = self._selects(node, calls, tests, index)
            for select in selects:
                select.attr["T"].type = result.dtype
            if selects:
                values[Value(node.name, index)] = Value(selects[-1].name)
            shapes |= {select.name: (result.shape,) for select in selects}
            added += selects
        return added

    def _selects(self, node: Any, calls: list[Any], tests: list[Any], index: int) -> list[Any]:
        """What selects one of the branches' results of one number; the last yields it."""
        selects: list[Any] = []
        taken = [test for test in tests if test.op != "Const"]
        otherwise = str(Value(calls[-1].name, index))
        for test, call in reversed(list(zip(taken, calls[:-1], strict=True))):
            name = f"{node.name}/wu_shard_selected_{index}_{len(selects)}"
            inputs = [test.name, str(Value(call.name, index)), otherwise]
            select = self._new(node, name, "SelectV2", inputs)
            selects.append(select)
            otherwise = name
        return selects

    def _new(self, node: Any, name: str, op: str, inputs: Iterable[str]) -> Any:
        new = tf.compat.v1.NodeDef(name=name, op=op, device=node.device, input=inputs)
        self._adopt(new)
        return new


def _common_shape(branches: Sequence[_Flat], index: int) -> Shape:
    """The shape that TensorFlow inferred of what all branches yield; None where it did not."""
    shapes = {flat.result(index) for flat in branches}
    return shapes.pop() if len(shapes) == 1 else None
