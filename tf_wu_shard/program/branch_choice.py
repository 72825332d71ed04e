"""What stands in the place of a branch op whose branches all run: their calls, and what chooses.

Of what the branches return, the op's predicate selects; of lists of rows, a branch that is not
taken gets none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tf_wu_shard import refusals
from tf_wu_shard.dtypes import BOOL, INT32
from tf_wu_shard.graph.calls import IFS, callee_names
from tf_wu_shard.graph.nodes import control_inputs, source_of
from tf_wu_shard.graph.op import Value
from tf_wu_shard.program.called_graph import Shape
from tf_wu_shard.program.row_lists import Select, all_or_none
from tf_wu_shard.program.speculation import RunsInVainError

# What its branches are called, after the op's name and before their numbers.
BRANCH = "wu_shard_branch_"

# What says whether a branch of an op is taken, likewise.
_TAKEN = "wu_shard_taken_"


def branch_call(op: str, number: int) -> str:
    """The name of what calls a branch of an op that is written out."""
    return f"{op}/{BRANCH}{number}"


def branch_number(op: str, call: str) -> int | None:
    """The number of the branch of an op that a call is of; None of another call."""
    number = call.removeprefix(f"{op}/{BRANCH}")
    return int(number) if number.isdecimal() else None


def select_of(call: str) -> Select:
    """What selects by whether the branch of a condition is taken, given what calls it."""
    op, _, number = call.rpartition(f"/{BRANCH}")
    return Select(call, f"{op}/{_TAKEN}0", is_taken=number == "0")


class Result(NamedTuple):
    """A result of a branch op: its DataType number, and its shape as far as it is known."""

    dtype: int
    shape: Shape


class BranchChoice:
    """Makes it for one branch op.

    Attributes:
        calls: The NodeDefs of the calls, one of each branch.
    """

    def __init__(self, node: Any, adopt: Callable[[Any], None]) -> None:
        """Makes the calls.

        Args:
            node: The NodeDef of the branch op; never changed.
            adopt: Makes a new NodeDef part of the program that the op is in.
        """
        self._node = node
        self._adopt = adopt
        self.calls: list[Any] = []
        for name in callee_names(node):
            called = branch_call(node.name, len(self.calls))
            call = self._new(called, "PartitionedCall", node.input[1:])
            for attribute in ("Tin", "Tout"):
                if attribute in node.attr:
                    call.attr[attribute].CopyFrom(node.attr[attribute])
            call.attr["f"].func.name = name
            self.calls.append(call)

    def done(self) -> Any:
        """A NodeDef of the op's name, which waits for what it waited for."""
        return self._new(self._node.name, "NoOp", control_inputs(self._node))

    def handing_lists(
        self, lists: Sequence[Sequence[int]], node_of: Callable[[str], Any | None]
    ) -> list[Any]:
        """What hands the branches of a condition their lists of rows; the calls are changed.

        Args:
            lists: For each branch, the numbers of its arguments that are some.
            node_of: The NodeDef around of a name; None where there is none.
        """
        added: list[Any] = []
        for call, numbers in zip(self.calls, lists, strict=True):
            if not numbers:
                continue
            types = {call.input[n]: call.attr["Tin"].list.type[n] for n in numbers}
            new, handed = all_or_none(f"{call.name}/wu_shard_lists", select_of(call.name), types)
            for one in new:
                source = node_of(source_of(one.input[0])) if one.input else None
                one.device = (source or self._node).device
                self._adopt(one)
            for number in numbers:
                call.input[number] = handed[call.input[number]]
            added += new
        return added

    def selection(
        self,
        of_results: Mapping[int, Result],
        values: dict[Value, Value],
        shapes: dict[str, tuple[Shape, ...]],
    ) -> list[Any]:
        """What selects the results of the op out of those of its branches.

        Args:
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
        tests = self._tests()
        shapes |= {test.name: ((),) for test in tests}
        added = [*tests]
        for index, result in of_results.items():
            # An op may have one branch, which is taken whatever the predicate is.
            values[Value(self._node.name, index)] = Value(self.calls[-1].name, index)
            selects = self._selects(tests, index)
            for select in selects:
                select.attr["T"].type = result.dtype
            if selects:
                values[Value(self._node.name, index)] = Value(selects[-1].name)
            shapes |= {select.name: (result.shape,) for select in selects}
            added += selects
        return added

    def _tests(self) -> list[Any]:
        """What decides whether a branch is taken, two ops each; the last one is if no other is."""
        node, tests = self._node, []
        for number in range(len(self.calls) - 1):
            scope = f"{node.name}/{_TAKEN}{number}"
            if node.op in IFS:
                if "Tcond" not in node.attr or node.attr["Tcond"].type != BOOL:
                    raise RunsInVainError(refusals.Branches.BRANCH_NO_TRUTH_VALUE.at())
                test = self._new(scope, "Identity", [node.input[0]])
                test.attr["T"].type = BOOL
                tests.append(test)
                continue
            own = self._new(f"{scope}/number", "Const", [])
            own.attr["dtype"].type = INT32
            own.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(number, tf.int32))
            test = self._new(scope, "Equal", [node.input[0], own.name])
            test.attr["T"].type = INT32
            tests += [own, test]
        return tests

    def _selects(self, tests: list[Any], index: int) -> list[Any]:
        """What selects one of the branches' results of one number; the last yields it."""
        selects: list[Any] = []
        taken = [test for test in tests if test.op != "Const"]
        otherwise = str(Value(self.calls[-1].name, index))
        for test, call in reversed(list(zip(taken, self.calls[:-1], strict=True))):
            name = f"{self._node.name}/wu_shard_selected_{index}_{len(selects)}"
            inputs = [test.name, str(Value(call.name, index)), otherwise]
            select = self._new(name, "SelectV2", inputs)
            selects.append(select)
            otherwise = name
        return selects

    def _new(self, name: str, op: str, inputs: Iterable[str]) -> Any:
        new = tf.compat.v1.NodeDef(name=name, op=op, device=self._node.device, input=inputs)
        self._adopt(new)
        return new
