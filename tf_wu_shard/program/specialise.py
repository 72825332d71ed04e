"""Makes functions that take the values of variables, out of those that take their handles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tf_wu_shard.graph.calls import callee_names, first_argument, is_call
from tf_wu_shard.graph.op import parse_value
from tf_wu_shard.graph.view import VariableRef
from tf_wu_shard.program.called_graph import CalledGraph
from tf_wu_shard.program.fused_values import OnValues
from tf_wu_shard.program.inlining import Body
from tf_wu_shard.program.lifting import Function, HandleNeededError, of_values
from tf_wu_shard.step.accesses import access_by_callee, ignores
from tf_wu_shard.step.capture import Captured


class Specialiser:
    """Makes each such function once.

    Attributes:
        functions: All that were made since the trace, by name.
        view: The graph whose ops call the functions.
    """

    def __init__(
        self, graph: CalledGraph, captured: Captured, fused: OnValues | None = None
    ) -> None:
        """Begins with what was made already.

        Args:
            graph: That whose ops call the functions.
            captured: Its graph and variables.
            fused: Does with values what fused updates do, in functions that may write.
        """
        self._fused = fused
        # Names of functions are unique; each graph knows those that its own ops call.
        self._graphs = [graph]
        self.view = captured.view
        self.functions = dict(captured.functions)
        self._made: dict[Any, str] = {}

    def reading(
        self, name: str, arguments: Mapping[int, VariableRef], handed_back: tuple[int, ...]
    ) -> str:
        """A function that only reads the variables; see `lifting.Specialise`."""
        return self._specialise(name, arguments, handed_back, writing=False)

    def writing(
        self, name: str, arguments: Mapping[int, VariableRef], handed_back: tuple[int, ...]
    ) -> str:
        """A function that may write the variables as well; see `lifting.Specialise`."""
        return self._specialise(name, arguments, handed_back, writing=True)

    def _specialise(
        self,
        name: str,
        arguments: Mapping[int, VariableRef],
        handed_back: tuple[int, ...],
        writing: bool,
    ) -> str:
        refs = sorted(arguments.items())
        keys = tuple((number, ref.key, ref.replica) for number, ref in refs)
        wanted = (name, keys, handed_back)
        if wanted in self._made:
            return self._made[wanted]
        called, num_results = self._called(name)
        self._graphs.append(called)
        body = called.body(num_results)
        function = Function(body.nodes, body.arguments, tuple(map(str, body.results)))
        own = of_values(
            function,
            arguments,
            self.writing if writing else self.reading,
            self.may_write if writing else lambda node, slot: False,
            fused=self._fused if writing else None,
        )
        results = [*own.results, *(own.finals[number] for number in handed_back)]
        remade = body._replace(nodes=own.nodes, results=tuple(map(parse_value, results)))
        self._made[wanted] = self.made(called, remade)
        return self._made[wanted]

    def made(self, called: CalledGraph, body: Body) -> str:
        """The name of a function that is made of another.

        Args:
            called: The graph of the other.
            body: What it consists of, see `CalledGraph.remade`.
        """
        calls = (node for node in body.nodes if is_call(node.op))
        names = {name for call in calls for name in callee_names(call)}
        new = called.remade(
            body, [self.functions[name] for name in sorted(names & self.functions.keys())]
        )
        self.functions[new.name.decode()] = new
        return new.name.decode()

    def _called(self, name: str) -> tuple[CalledGraph, int | None]:
        """A function's graph, and how many results it had when it was called; None for all.

        Raises:
            HandleNeededError: If it is known by its definition alone: a loaded one.
        """
        for graph in self._graphs:
            called = graph.inner(name, self.functions)
            if called is not None:
                definition = self.view.functions.get(name)
                return called, definition and len(definition.signature.output_arg)
        raise HandleNeededError(name)

    def used_and_written(
        self, node: Any, taken: Mapping[int, VariableRef]
    ) -> tuple[dict[int, VariableRef], list[int]]:
        """Of the variables that are operands of a call, those that its functions do not ignore.

        Args:
            node: The NodeDef of the call.
            taken: The variables, by the number of the operand.

        Returns:
            Those variables, and the operands among them that may be written.
        """
        written = [slot for slot in taken if self.may_write(node, slot)]
        used = {slot: ref for slot, ref in taken.items() if not ignores(self.view, node, slot)}
        return used, written

    def may_write(self, node: Any, slot: int) -> bool:
        """Whether functions that a node calls may write the variable that is an operand."""
        argument = slot - first_argument(node.op)
        return argument >= 0 and not all(
            access_by_callee(self.view, name, argument).is_read for name in callee_names(node)
        )
