"""What an update computes in shards, but for the parts of it that need whole tensors.

Those parts, its matrix functions, are found by closure: what no rule for shards covers, whatever
lies on a way from one such op to another, sums that serve nothing else (the norm that Newton-Schulz
begins with), and ops without which more tensors would enter or come out. Each part takes tensors
in and gives tensors out that have as many elements as one of the update's variables, and are cut
like it. These need not be of the weight's size: the statistics that Shampoo keeps of a matrix
[m, n] are matrices [m, m] and [n, n].
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping
from typing import Any

from tf_wu_shard import refusals
from tf_wu_shard.graph.calls import callee_names, is_call
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.grounds.tpu.ops import ACROSS_REPLICAS
from tf_wu_shard.placement import Sharded, Whole
from tf_wu_shard.reachable import reachable
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.step.variable_values import values_of
from tf_wu_shard.weight_update.analysis.update_slice import UpdateSlice


class MatrixSlice(UpdateSlice):
    """The backward slice from the writes, with its matrix functions.

    Attributes:
        functions: After `place`: for each matrix function its ops, by name.
        function_of: After `place`: for each op of one, by name, which.
    """

    functions: tuple[frozenset[str], ...] = ()

    def place(self) -> Refusal | None:
        """See `UpdateSlice.place`; the body has the ops of each function one after the other."""
        self._whole: set[str] = set()
        self.function_of: dict[str, int] = {}
        return super().place() or self._close()

    def size_at(self, op: Op) -> int:
        """See `UpdateSlice.size_at`: of the variable that it writes, or of what it yields."""
        if op in self._writes:
            return self._elements_written(op)
        return math.prod(self._view.shape(Value(op.name)) or ())

    def _against_sizes(self) -> Refusal | None:
        """See `UpdateSlice`: slots may have sizes of their own, weights and gradients may not."""
        where = self._writes[0].name
        refs = (self._view.variables[handle] for handle in self._own_handles)
        trained = {math.prod(ref.shape or ()) for ref in refs if ref.trainable}
        gradients = [self._names.of(key, 0)[0] for key in self._keys]
        fed = {math.prod(self._view.shape(value) or ()) for value in gradients}
        if len(trained | fed) > 1:
            return refusals.Matrices.WEIGHTS_OF_DIFFERENT_SIZES.at(where)
        self.size = max(trained, default=self.size)
        return None

    def origin(self, value: Value) -> Value:
        """The value that an IdentityN, which is part of nothing, hands through."""
        return self._view.unbundled(value, self._names)

    def _place_op(self, op: Op) -> Refusal | None:
        refusal = super()._place_op(op)
        if op.name in self._written_by or refusal is None or not refusal.of_rules:
            return refusal
        refusal = self._against(op)
        if refusal is None:
            self._place_whole(op)
        return refusal

    def _place_whole(self, op: Op) -> None:
        """Leaves an op to what has whole tensors."""
        self.body.append(op)
        self._whole.add(op.name)
        for value in self._view.results(op.name):
            shape = self._view.shape(value)
            cut = shape is not None and math.prod(shape) in self.sizes
            self.placements[value] = Sharded(shape) if shape is not None and cut else Whole()

    def _against(self, op: Op) -> Refusal | None:
        """Why an op cannot be computed by one replica in the place of another, or None."""
        if any(self._names.is_apart(v, self._keys) for v in op.inputs):
            return refusals.Updates.KEPT_APART.at(op.name)
        own = self._not_movable(op.node, ())
        if own is not None:
            return refusals.Matrices.NOT_FOR_ANOTHER.at(op.name, op_type=own)
        return None

    def _not_movable(self, node: Any, calling: tuple[str, ...]) -> str | None:
        """The type of the op, or of one in a function it calls, that each replica does itself."""
        if node.op in ACROSS_REPLICAS or self._view.is_stateful(node.op):
            return str(node.op)
        if not is_call(node.op):
            return None
        for name in callee_names(node):
            function = self._view.functions.get(name)
            if function is None or name in calling:
                return str(node.op)
            for inner in function.node_def:
                found = self._not_movable(inner, (*calling, name))
                if found is not None:
                    return found
        return None

    def _close(self) -> Refusal | None:
        """Finds all ops of the functions, and puts the body in order."""
        self._passing = {
            op.name: op
            for op in sorted((self._view.ops[n] for n in self._within), key=lambda o: o.position)
            if op.name not in self._written_by and op.type not in (READ, "IdentityN")
        }
        self._sources_of = {
            name: [o.op for v in op.inputs if (o := self.origin(v)) not in self._names]
            for name, op in self._passing.items()
        }
        members = self._whole | (
            _reached(self._whole, self._sources_of)
            & _reached(self._whole, _turned_round(self._sources_of))
        )
        members = self._with_servants(members & self._passing.keys())
        members = self._with_joins(members)
        for name in members:
            refusal = self._against(self._passing[name])
            if refusal is not None:
                return refusal
            self.sums.pop(name, None)
        self.functions = self._parts(members)
        self.function_of = {name: i for i, names in enumerate(self.functions) for name in names}
        outside = [op for op in self.body if op.name not in members]
        return self._order(outside)

    def _with_servants(self, members: set[str]) -> set[str]:
        """Members of functions, and what serves nothing else and had better be computed there."""
        servants: set[str] = set()
        for name, op in reversed(self._passing.items()):
            if name not in members and self._serves_only(op, members | servants):
                servants.add(name)
        behind = _turned_round(self._sources_of)
        for name in servants.intersection(self.sums):
            members = members | {name} | (_reached({name}, behind) & servants)
        constant: set[str] = set()
        for name, op in self._passing.items():
            of_constants = bool(op.inputs) and len(self._sources_of[name]) == len(op.inputs)
            if op.type == "Const" or (of_constants and constant.issuperset(self._sources_of[name])):
                constant.add(name)
        while True:
            given = {v for name in members for v in self._shards_into(self._passing[name], members)}
            more = {
                name
                for name in servants - members
                if self._serves_only(op := self._passing[name], members)
                and (self._is_given(op, given) or (name in constant and op.type != "Const"))
            }
            if not more:
                return members
            members = members | more

    def _with_joins(self, members: set[str]) -> set[str]:
        """Members, and what makes fewer tensors of what they yield."""
        fewer = True
        while fewer:
            fewer = False
            behind = _reached(members, _turned_round(self._sources_of))
            given = {v for name in members for v in self._shards_into(self._passing[name], members)}
            needs: dict[str, set[str]] = {}
            for name, op in self._passing.items():
                if name in members or not self._joins(op, {*members, *needs}, behind, given):
                    continue
                sources = needs.keys() & self._sources_of[name]
                needs[name] = {name}.union(*(needs[source] for source in sources))
                if len(self._yielded(members | needs[name])) < len(self._yielded(members)):
                    members, fewer = members | needs[name], True
                    break
        return members

    def _joins(self, op: Op, own: set[str], behind: set[str], given: set[Value | int]) -> bool:
        """Whether an op needs no shards but those of `own` and what enters these anyway."""
        sources = self._sources_of[op.name]
        if not isinstance(self.placements.get(Value(op.name)), Sharded) or own.isdisjoint(sources):
            return False
        later = any(source in behind and source not in own for source in sources)
        return not later and given.issuperset(self._shards_into(op, own))

    def _yielded(self, members: set[str]) -> set[Value]:
        """What others read of what members yield."""
        return {
            value
            for name in members
            for value in self._view.results(name)
            if not self._read_only_by(value, members)
        }

    def _serves_only(self, op: Op, names: set[str]) -> bool:
        """Whether an op is read, and all that reads it, anywhere, is among some."""
        values = self._view.results(op.name)
        read = any(self._view.consumers(value) for value in values)
        return read and all(self._read_only_by(value, names) for value in values)

    def _read_only_by(self, value: Value, names: set[str]) -> bool:
        """Whether all that reads a value, under whatever name, is among some."""
        if value in self._view.outputs:
            return False
        return all(
            self._read_only_by(reader.result_of(slot), names)
            if reader.passes_each_on
            else reader.name in names
            for reader, slot in self._view.consumers(value)
        )

    def _is_given(self, op: Op, given: set[Value | int]) -> bool:
        """Whether an op makes a tensor in shards of none but those."""
        if not isinstance(self.placements.get(Value(op.name)), Sharded):
            return False
        return given.issuperset(self._shards_into(op, ()))

    def _shards_into(self, op: Op, members: Container[str]) -> set[Value | int]:
        """What enters an op in shards, and not from members; gradients by their keys."""
        found: set[Value | int] = set()
        for value in map(self.origin, op.inputs):
            if value.op in members and value not in self._names:
                continue
            own = self.source(value)
            if self.is_gradient(own):
                found.add(self._names[own][0])
            elif isinstance(self.placements.get(value), Sharded):
                found.add(own)
        return found

    def _parts(self, members: set[str]) -> tuple[frozenset[str], ...]:
        """Members that belong together, as one reads what the other yields."""
        part = {name: {name} for name in members}
        for name in members:
            for source in members.intersection(self._sources_of[name]):
                if part[source] is not part[name]:
                    part[name] |= part[source]
                    part.update(dict.fromkeys(part[source], part[name]))
        ordered = sorted(members, key=lambda name: self._passing[name].position)
        return tuple(dict.fromkeys(frozenset(part[name]) for name in ordered))

    def _order(self, outside: list[Op]) -> Refusal | None:
        """Puts the body in an order in which each function is a run of it, if there is one."""
        functions = [[op for n, op in self._passing.items() if n in f] for f in self.functions]
        runs = [*([op] for op in outside), *functions]
        number_of = {op.name: number for number, run in enumerate(runs) for op in run}
        before = [self._runs_before(run, number_of) for run in runs]
        for handle in self._own_handles:
            for op, earlier in values_of(self._view, handle).in_order():
                if op.name in number_of:
                    own = (number_of[o.name] for o in earlier if o.name in number_of)
                    before[number_of[op.name]].update(own)
        waiting = {number: found - {number} for number, found in enumerate(before)}
        self.body = []
        while waiting:
            ready = [
                number for number, found in waiting.items() if waiting.keys().isdisjoint(found)
            ]
            if not ready:
                stuck = min(n for n in waiting if len(runs[n]) > 1 or n >= len(outside))
                return refusals.Matrices.WAITS_FOR_WRITES.at(runs[stuck][0].name)
            first = min(ready, key=lambda number: runs[number][0].position)
            self.body += runs[first]
            del waiting[first]
        return None

    def _runs_before(self, run: list[Op], number_of: Mapping[str, int]) -> set[int]:
        """The runs that yield what enters one."""
        found: set[int] = set()
        for value in (self.origin(v) for op in run for v in op.inputs):
            own = value if value.op in number_of else self.source(value)
            if own not in self._names and own.op in number_of:
                found.add(number_of[own.op])
        return found


def _reached(start: Iterable[str], neighbours: Mapping[str, Iterable[str]]) -> set[str]:
    """What some names lead to, by one or more steps."""

    def next_to(name: str) -> Iterable[str]:
        return neighbours.get(name, ())

    return set(reachable((following for name in start for following in next_to(name)), next_to))


def _turned_round(neighbours: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """For each name, those that lead to it."""
    found: dict[str, list[str]] = {}
    for name, others in neighbours.items():
        for other in others:
            found.setdefault(other, []).append(name)
    return found
