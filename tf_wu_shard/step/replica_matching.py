"""Proof that the replicas' copies of an update are one program, and that they agree.

Starting from ops known to play the same part (the i-th write of the same variable on each replica),
it walks the copies backwards in lockstep. Every pair of ops must be alike in type, attributes and
operands, down to leaves that hold the same value on every replica: the same op, equal constants,
the components of a mirrored variable read after the same writes, or results of the same reduction.
A read right behind an assignment is what was assigned, so there the assigned values are followed.
A leaf that is one replica's own (its input, its random numbers, a variable it writes alone) means
that the copies may differ; sharding would then change the result, so it is refused.
"""

from __future__ import annotations

import functools
from typing import Any

from tf_wu_shard import refusals
from tf_wu_shard.graph.calls import CALLS, all_named_by, names_in
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.rules.sparse import READ_ROWS
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.rules.writes import ASSIGN, is_plain_write, writes_rows
from tf_wu_shard.step.variable_values import values_of


class ReplicaMatcher:
    """Finds, for ops of replica 0, the op that plays the same part on another replica."""

    def __init__(self, view: GraphView, results: dict[Value, tuple[int, int]]) -> None:
        """Prepares to match.

        Args:
            view: The graph.
            results: For each result of a gradient reduction, under all its names,
                `(reduction key, replica)`.
        """
        self._view = view
        self._results = results
        self._partner: dict[int, dict[str, str]] = {}
        self._partner_results: dict[tuple[int, Value], Value] = {}
        # Ops of replica 0 in the order in which they got a partner.
        self._matched: list[str] = []
        self._functions: dict[str, Any] = {}
        # Each op of replica 0 is held against those of all others.
        self._shown_of_first = functools.cache(lambda op: _shown(view.ops[op].node.attr))

    def partner(self, replica: int, op: str) -> str:
        """The op on `replica` that plays the part of `op` of replica 0.

        Where all replicas take what replica 0 computed, no other replica has such an op, and its
        part is played by `op` itself. It may be computed from replica 0's reduced gradients: those
        of the others are the same.
        """
        return op if replica == 0 else self._partner.get(replica, {}).get(op, op)

    def value_on(self, replica: int, value: Value) -> Value:
        """The value on `replica` that plays the part of `value` of replica 0, as in `partner`."""
        if replica == 0:
            return value
        if value in self._results:
            return self._partner_results[replica, value]
        return Value(self.partner(replica, value.op), value.index)

    def match(self, replica: int, first: str, other: str) -> Refusal | None:
        """Matches the writes `first` (on replica 0) and `other` with all they depend on.

        Args:
            replica: The replica that `other` belongs to.
            first: Name of an op of replica 0.
            other: Name of the op said to play its part on `replica`.

        Returns:
            None when they match, else the first difference found.
        """
        partner = self._partner.setdefault(replica, {})
        begun = len(self._matched)
        refusal = self._follow(replica, partner, first, other)
        if refusal is not None:
            # What was matched on the way holds only with all that enters it.
            for name in self._matched[begun:]:
                del partner[name]
            del self._matched[begun:]
        return refusal

    def _follow(
        self, replica: int, partner: dict[str, str], first: str, other: str
    ) -> Refusal | None:
        stack = [(first, other)]
        while stack:
            a_name, b_name = stack.pop()
            known = partner.get(a_name)
            if known is not None:
                if known != b_name:
                    return refusals.Replicas.TWO_OPS_FOR_ONE.at(
                        b_name, replica=replica, other=known, first=a_name
                    )
                continue
            a, b = self._view.ops[a_name], self._view.ops[b_name]
            refusal = self._alike(replica, a, b)
            if refusal is not None:
                return refusal
            partner[a_name] = b_name
            self._matched.append(a_name)
            if a_name == b_name:
                continue
            for x, y in self._sources(replica, a, b):
                if x in self._results or y in self._results:
                    refusal = self._same_result(replica, x, y)
                    if refusal is not None:
                        return refusal
                elif x.index != y.index:
                    return refusals.Replicas.OTHER_VALUES.at(b_name, replica=replica)
                elif self._element_of_results(x, y):
                    refusal = self._same_element(replica, x, y)
                    if refusal is not None:
                        return refusal
                    if x.op not in partner:
                        self._matched.append(x.op)
                    partner[x.op] = y.op
                else:
                    stack.append((x.op, y.op))
        return None

    def _element_of_results(self, x: Value, y: Value) -> bool:
        """Whether both are outputs of an IdentityN, whose other operands do not concern us."""
        ops = self._view.ops
        return x.op != y.op and ops[x.op].passes_each_on and ops[y.op].passes_each_on

    def _same_element(self, replica: int, x: Value, y: Value) -> Refusal | None:
        a = self._view.ops[x.op].inputs[x.index]
        b = self._view.ops[y.op].inputs[y.index]
        if a in self._results or b in self._results:
            return self._same_result(replica, a, b)
        if a.index != b.index:
            return refusals.Replicas.OTHER_VALUES.at(y.op, replica=replica)
        return self.match(replica, a.op, b.op)

    def _same_result(self, replica: int, x: Value, y: Value) -> Refusal | None:
        a, b = self._results.get(x), self._results.get(y)
        if a is None or b is None or a[0] != b[0] or a[1] != 0 or b[1] != replica:
            return refusals.Replicas.OTHER_GRADIENTS.at(y.op, replica=replica)
        if self._view.shape(x) != self._view.shape(y):
            return refusals.Replicas.OTHER_SHAPES.at(y.op, replica=replica)
        self._partner_results[replica, x] = y
        return None

    def _alike(self, replica: int, a: Op, b: Op) -> Refusal | None:
        if a.name == b.name:
            return None
        if a.type != b.type or len(a.inputs) != len(b.inputs):
            return refusals.Replicas.OTHER_OP.at(
                b.name, replica=replica, op_type=b.type, first_type=a.type, first=a.name
            )
        if a.name in self._view.variables:
            return self._same_variable(replica, a, b)
        if not self._same_epochs(a, b) and not (a.type == READ and self._assigned(a, b)):
            return refusals.Replicas.READ_AFTER_OTHER_WRITES.at(b.name)
        if a.type in ("Placeholder", "Arg", "_Arg"):
            return refusals.Replicas.INPUT_OF_ONE_REPLICA.at(b.name, replica=replica)
        if self._view.is_stateful(a.type) and not self._repeatable(a):
            return refusals.Replicas.OWN_RUN.at(b.name, op_type=a.type)
        if not self._same_attributes(a, b):
            return refusals.Replicas.OTHER_ATTRIBUTES.at(b.name, first=a.name)
        return None

    def _same_variable(self, replica: int, a: Op, b: Op) -> Refusal | None:
        x, y = self._view.variables[a.name], self._view.variables.get(b.name)
        if y is None or x.key != y.key or x.replica != 0 or y.replica != replica:
            return refusals.Replicas.OTHER_VARIABLES.at(b.name, replica=replica)
        if not x.mirrored:
            return refusals.Replicas.OWN_VALUE.at(b.name, variable=x.name or x.key)
        return None

    def _sources(self, replica: int, a: Op, b: Op) -> list[tuple[Value, Value]]:
        """What two ops are equal for, if it is equal itself."""
        if a.type == READ and not self._same_epochs(a, b):
            return self._assigned(a, b)
        if a.type == READ and self._are_crossed(replica, a, b):
            return []
        return list(zip(a.inputs, b.inputs, strict=True))

    def _are_crossed(self, replica: int, a: Op, b: Op) -> bool:
        """Whether two reads are of one mirrored variable, if not each of its replica's own.

        All its components are equal after equally many writes. Which one a replica reads can be a
        matter of the order in which Python goes through a set of devices.
        """
        x, y = (self._view.variables.get(op.inputs[0].op) for op in (a, b))
        if x is None or y is None or x.key != y.key or not x.mirrored:
            return False
        return (x.replica, y.replica) != (0, replica)

    def _same_epochs(self, a: Op, b: Op) -> bool:
        """Whether two ops see the variables that they take after as many writes."""
        if a.type not in (READ, READ_ROWS) and a.type not in CALLS:
            return True
        view = self._view
        return all(
            values_of(view, x.op).seen.get(a.name) == values_of(view, y.op).seen.get(b.name)
            for x, y in zip(a.inputs, b.inputs, strict=True)
            if x.op in view.variables
        )

    def _assigned(self, a: Op, b: Op) -> list[tuple[Value, Value]]:
        """The values that two reads yield, where each follows an assignment of a whole value."""
        x, y = self._last_written(a), self._last_written(b)
        return [] if x is None or y is None else [(x, y)]

    def _last_written(self, read: Op) -> Value | None:
        """What the last write before a read assigned; None where it computed with the old value."""
        last = values_of(self._view, read.inputs[0].op).seen_by(read.name).write
        if last is None or last.op.type != ASSIGN:
            return None
        return last.op.inputs[1] if self._view.first_unordered([last.op], read) is None else None

    def _same_attributes(self, a: Op, b: Op) -> bool:
        x, y = self._shown_of_first(a.name), _shown(b.node.attr)
        if x == y or a.type not in CALLS:
            return x == y
        return x.keys() == y.keys() and all(
            self._shape_of(value) == self._shape_of(y[name]) for name, value in x.items()
        )

    def _repeatable(self, op: Op) -> bool:
        """Whether a stateful op still gives equal results for equal operands on two replicas."""
        if op.type in (READ, READ_ROWS) or writes_rows(op.type) or op.name in self._view.variables:
            return True
        if op.type not in CALLS and not op.type.startswith("ResourceApply"):
            return op.type.startswith("Assign") and op.type.endswith("VariableOp")
        return all(self._function_is_repeatable(n, ()) for n in all_named_by(op.node))

    def _function_is_repeatable(self, name: str, calling: tuple[str, ...]) -> bool:
        function = self._view.functions.get(name)
        if function is None or name in calling:
            return False
        for node in function.node_def:
            inner = all_named_by(node)
            if not all(self._function_is_repeatable(n, (*calling, name)) for n in inner):
                return False
            pure = not self._view.is_stateful(node.op)
            known = node.op == READ or is_plain_write(node.op) or node.op in CALLS
            if not pure and not known:
                return False
        return True

    def content(self, op: Op) -> tuple[Any, ...]:
        """What an op does: its type and attributes, the functions they name by what those do."""
        shown = _shown(op.node.attr)
        return op.type, *((name, self._shape_of(shown[name])) for name in sorted(shown))

    def _shape_of(self, attribute: Any) -> Any:
        """An attribute with the functions it names replaced by what those functions do."""
        names = names_in(attribute)
        return tuple(self._meaning(n) for n in names) if names else attribute.SerializeToString()

    def _meaning(self, name: str) -> Any:
        """A function's content with its names numbered: equal for functions that do the same."""
        if name not in self._functions:
            self._functions[name] = None
            self._functions[name] = _numbered(self._view.functions.get(name), self._shape_of)
        return self._functions[name]


def _shown(attributes: Any) -> dict[str, Any]:
    """The attributes that say what an op does; others begin with an underscore."""
    # A protobuf map's own `items` takes twice as long, and every op of an update is asked.
    return {name: attributes[name] for name in attributes if name[0] != "_"}


def _numbered(function: Any, shape_of: Any) -> Any:
    if function is None:
        return None
    numbers = {a.name: f"arg{i}" for i, a in enumerate(function.signature.input_arg)}
    numbers |= {n.name: f"node{i}" for i, n in enumerate(function.node_def)}

    def number(text: str) -> str:
        control, body = ("^", text[1:]) if text.startswith("^") else ("", text)
        name, colon, rest = body.partition(":")
        return control + numbers.get(name, name) + colon + rest

    nodes = tuple(
        (
            node.op,
            tuple(number(i) for i in node.input),
            tuple(sorted((name, shape_of(value)) for name, value in _shown(node.attr).items())),
        )
        for node in function.node_def
    )
    returned = tuple(number(function.ret[a.name]) for a in function.signature.output_arg)
    return nodes, returned
