"""Which ops of one branch may run in vain, and which stay where they are with all that needs them.

Variables decide: as soon as one op stays that changes a variable, all that change it do, and so do
the other variables that it is updated with.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from typing import Any

from tf_wu_shard.graph.builder import result_types
from tf_wu_shard.graph.calls import BRANCHES, PLAIN_CALLS, is_call
from tf_wu_shard.graph.nodes import control_inputs, data_inputs, rewired, sources_of
from tf_wu_shard.graph.op import Value, parse_value
from tf_wu_shard.graph.view import VariableRef
from tf_wu_shard.program.called_graph import CalledGraph
from tf_wu_shard.program.flat_functions import FlatFunctions
from tf_wu_shard.program.fused_values import stand_in
from tf_wu_shard.program.inlining import Body
from tf_wu_shard.program.row_lists import RowLists
from tf_wu_shard.program.specialise import Specialiser
from tf_wu_shard.program.speculation import RunsInVainError, constants_of, why_not
from tf_wu_shard.program.value_ops import is_write, on_value
from tf_wu_shard.reachable import reachable
from tf_wu_shard.rules.writes import is_fused_update, writes_rows


class BranchBody:
    """One branch of the op.

    Attributes:
        called: Its graph.
        body: Its nodes.
        written: The numbers of its arguments that are variables which it writes.
        in_place: The numbers of those that ops update which need their handles: for each fused
            update once, and once for all that writes rows.
        apart: Names of the ops that are taken out.
        rest: Names of those that stay.
        observes: Whether what stays has an effect that comes after a write that is taken out.
    """

    def __init__(
        self,
        called: CalledGraph,
        body: Body,
        refs: Mapping[int, VariableRef],
        staying: Collection[str],
        specialiser: Specialiser,
        of_lists: bool = False,
    ) -> None:
        """Finds out what may run in vain.

        Args:
            called: The branch.
            body: Its nodes.
            refs: Its arguments that are variables, by number.
            staying: Names of ops that must not run in vain, beside what is seen here.
            specialiser: Makes the functions.
            of_lists: Whether it may be handed lists of rows, all or none.
        """
        self.called = called
        self.body = body
        self.by_name = {node.name: node for node in body.nodes}
        self.written: set[int] = set()
        self.apart: set[str] = set()
        self.rest: set[str] = set()
        self.observes = False
        self._refs = refs
        self._specialiser = specialiser
        self._numbers = {name: number for number, name in enumerate(body.arguments)}
        self._handles = {body.arguments[number]: number for number in refs}
        self._constants = constants_of(body.nodes)
        for node in self._ops():
            held = self.held(node)
            if held and node.op == "Identity":
                self._handles[node.name] = held[0]
            elif held and self._writes(node):
                self.written |= set(held.values())
        values = set(body.arguments) - {body.arguments[number] for number in refs}
        self._lists = RowLists(body.nodes, values if of_lists else (), called.static_shape)
        ops = [*self._ops()]
        rows = [n for n in ops if writes_rows(n.op) and n.name in self._lists.made]
        fused = [a for n in ops if is_fused_update(n.op) for a in self.held(n).values()]
        self.in_place = [*fused, *{a for n in rows for a in self.held(n).values()}]
        in_vain = {node.name for node in self._ops() if self._runs_in_vain(node)}
        self._stays = {node.name for node in self._ops()} - in_vain | set(staying)
        # What stays with a variable that stays, or needs what stays.
        self._behind: set[str] = set()

    def _ops(self) -> Iterator[Any]:
        return (node for node in self.body.nodes if node.name not in self._numbers)

    def held(self, node: Any) -> dict[int, int]:
        """A node's operands that are variables, by number, and which arguments those are."""
        handles = self._handles
        return {slot: handles[text] for slot, text in enumerate(node.input) if text in handles}

    def _runs_in_vain(self, node: Any) -> bool:
        held = self.held(node)
        if self._lists.must_not(node):
            return False
        if not held:
            if node.op not in (*PLAIN_CALLS, *BRANCHES):
                return node.op == "NoOp" or why_not(node, self._constants, self._lists) is None
            functions = FlatFunctions(self._specialiser.functions, lambda node: None)
            try:
                functions.check(self.called, node)
            except RunsInVainError:
                return False
            return True
        if len(set(held.values())) < len(held):
            return False
        refs = {slot: self._refs[number] for slot, number in held.items()}
        if is_fused_update(node.op) or writes_rows(node.op):
            return stand_in(node, dict.fromkeys(refs, ""), refs) is not None
        if node.name in self._lists.made:
            return True
        done = on_value(node, "", refs[0]) if [*held] == [0] else None
        return done is not None and all(
            why_not(new, self._constants | constants_of(done)) is None for new in done
        )

    def _writes(self, node: Any) -> bool:
        """Whether an op may write variables that it takes."""
        if is_call(node.op):
            return any(self._specialiser.may_write(node, slot) for slot in self.held(node))
        if is_write(node.op) or is_fused_update(node.op):
            return True
        refs = {slot: self._refs[number] for slot, number in self.held(node).items()}
        return [*refs] != [0] or on_value(node, "", refs[0]) is None

    def mark(self, kept: set[str]) -> bool:
        """Finds what stays, as far as it is known which variables do.

        Args:
            kept: The keys of those variables; those that are found here are added.

        Returns:
            Whether there are more of them.
        """
        before = len(kept)
        behind: set[str] = set()
        changed: set[str] = set()
        for node in self._ops():
            keys = {self._refs[number].key for number in self.held(node).values()}
            stays = node.name in self._stays or not behind.isdisjoint(sources_of(node))
            if keys and self._writes(node):
                stays = stays or not kept.isdisjoint(keys)
                changed |= keys
            else:
                # Before the branch changes it, a variable holds what it held outside.
                stays = stays or bool(keys & kept & changed)
            if stays:
                behind.add(node.name)
                kept |= keys
        self._behind = behind
        kept |= self._read_by(behind)
        return len(kept) > before

    def _read_by(self, names: set[str]) -> set[str]:
        """The keys of variables whose elements some ops compute with: what is of one update."""

        def computed_with(name: str) -> Iterator[str]:
            for value in map(parse_value, data_inputs(self.by_name[name])):
                # All updates may share a number, such as a norm of all gradients.
                if value.op not in self._numbers and self.called.static_shape(*value) != ():
                    yield value.op

        reached = self.nodes({*reachable(names, computed_with)})
        held = {a for node in reached for a in self.held(node).values()} & self.written
        return {self._refs[number].key for number in held if self._refs[number].shape != ()}

    def returns_one_of(self, arguments: Collection[int]) -> bool:
        """Whether it returns a variable's handle."""
        return any(self._handles.get(str(value)) in arguments for value in self.body.results)

    def take_out(self, arguments: Set[int]) -> None:
        """Tells what is taken out from what stays.

        Args:
            arguments: The numbers of its arguments that are variables whose writes are taken out.
        """
        reached = {n.name for n in self._ops() if arguments & set(self.held(n).values())}
        self.apart = self._with_sources(reached - self._behind, lambda name: True)
        effects = {
            name
            for name in self._behind
            if name in self.body.control_outputs
            or self._specialiser.view.is_stateful(self.by_name[name].op)
        }
        results = {v.op for v in self.body.results if v.op in self.by_name}
        ended = (effects | results) - self.apart - self._numbers.keys()
        self.rest = self._with_sources(ended, lambda name: name not in self.apart)
        observing = {name for name in effects if not self.held(self.by_name[name])}
        before = self._with_sources(observing, lambda name: True)
        self.observes = any(
            not arguments.isdisjoint(self.held(node).values()) and self._writes(node)
            for node in self.nodes(before)
        )

    def _with_sources(self, names: Collection[str], wanted: Callable[[str], bool]) -> set[str]:
        """Ops, and those that they need, arguments left out."""

        def needed(name: str) -> Iterator[str]:
            sources = sources_of(self.by_name[name])
            return (s for s in sources if s not in self._numbers and wanted(s))

        return {*reachable(names, needed)}

    @functools.cached_property
    def handed(self) -> tuple[Value, ...]:
        """What the rest takes of what is taken out; constants it has itself."""
        taken = [parse_value(t) for n in self.nodes(self.rest) for t in data_inputs(n)]
        taken += self.body.results
        return tuple(
            dict.fromkeys(v for v in taken if v.op in self.apart and v.op not in self._constants)
        )

    @property
    def hands_a_handle(self) -> bool:
        """Whether the rest would take a variable's handle from what is taken out."""
        return any(value.op in self._handles for value in self.handed)

    def dtype_of(self, value: Value) -> int:
        """The element type of what one of its ops yields."""
        return result_types(self.by_name[value.op])[value.index]

    def used(self) -> set[int]:
        """The numbers of the arguments that the rest uses."""
        names = {name for node in self.nodes(self.rest) for name in sources_of(node)}
        names |= {value.op for value in self.body.results}
        return {self._numbers[name] for name in names & self._numbers.keys()}

    def read_apart(self) -> set[int]:
        """The numbers of the arguments that are variables which what is taken out reads."""
        return {a for node in self.nodes(self.apart) for a in self.held(node).values()}

    def nodes(self, names: Collection[str]) -> list[Any]:
        """Some of its nodes, in their order."""
        return [node for node in self.body.nodes if node.name in names]

    def rest_nodes(self, handed: Mapping[Value, str]) -> list[Any]:
        """The nodes that stay, and the constants that they need.

        Args:
            handed: The arguments that what they take from what is taken out is handed in by.
        """
        constants = {
            source
            for node in self.nodes(self.rest)
            for source in sources_of(node)
            if source in self._constants
        }
        constants |= {v.op for v in self.body.results if v.op in self._constants}
        there = self.rest | constants | self._numbers.keys()
        found = []
        for node in self.nodes(self.rest | constants):
            data = [handed.get(parse_value(text), text) for text in data_inputs(node)]
            waits = [text for text in control_inputs(node) if text[1:] in there]
            found.append(rewired(node, [*data, *waits]))
        return found
