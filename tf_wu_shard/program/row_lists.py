"""Lists of rows, of which a branch that is written out gets none where it is not taken.

How many rows a sparse gradient names is not known when the step is traced, and what writes them
must not do so in vain. So a branch that is written out gets each such list all or none:

    if finite: table[rows] -= values        own = rows[: n if finite else 0]
                                            table[own] -= values[: n if finite else 0]

What is made of such lists alone fits together where they have no entries. It may fail by the sizes
of one entry or of a table, and does so whenever the branch is taken: those do not depend on that.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tf_wu_shard.dtypes import INT32
from tf_wu_shard.graph.constants import integers
from tf_wu_shard.graph.nodes import data_inputs
from tf_wu_shard.graph.op import Value, attribute_in, parse_value
from tf_wu_shard.program.called_graph import Shape
from tf_wu_shard.reachable import reachable
from tf_wu_shard.rules.operation import Operation
from tf_wu_shard.rules.registry import Family, family_of, is_first
from tf_wu_shard.rules.sparse import (
    ALL_OR_NONE,
    LOOK_UP,
    READ_ROWS,
    SAME,
    SEGMENT_SUM,
    SHAPE,
    STRIDED_SLICE,
    UNIQUE,
)
from tf_wu_shard.rules.writes import WRITES, is_fused_update, is_plain_write, writes_rows

# More entries than a list has.
_ALL = 2**31 - 1


class Select(NamedTuple):
    """What selects by whether a branch is taken.

    Attributes:
        branch: The name of what calls the branch.
        test: The name of a truth value.
        is_taken: What it is where the branch is taken.
    """

    branch: str
    test: str
    is_taken: bool

    def inputs(self, taken: str, otherwise: str) -> list[str]:
        """What a SelectV2 takes, as NodeDefs name it."""
        return [self.test, *((taken, otherwise) if self.is_taken else (otherwise, taken))]


class _Kind(enum.Enum):
    LIST = "a list"
    SIZES = "the shape of one"
    COUNT = "how many entries one has"
    TABLE = "a table that entries were added up to, or what is made of one"


# The type of what an op does, which another op may stand for, and the number of its first operand
# that is no variable.
Meaning = Callable[[Any], tuple[str, int]]


def itself(node: Any) -> tuple[str, int]:
    """What an op does that stands for no other; see `Meaning`."""
    handles = WRITES[node.op].num_handles if writes_rows(node.op) else int(node.op == READ_ROWS)
    return node.op, handles


class RowLists:
    """Which ops of a branch are made of lists of rows, and are such that they may run on none.

    Attributes:
        arguments: Names of the arguments that are to be lists.
        made: Names of the ops that are made of them.
        meaning: What an op does.
    """

    def __init__(
        self,
        nodes: Sequence[Any],
        arguments: Collection[str],
        shape_of: Callable[[str, int], Shape],
        meaning: Meaning = itself,
    ) -> None:
        """Finds out.

        Args:
            nodes: The NodeDefs of the branch, each after its inputs, no calls among them.
            arguments: Names of its arguments that are no variables.
            shape_of: The dimensions of an op's result, None for open ones; None for an open rank.
            meaning: What an op does.
        """
        self._shape_of = shape_of
        self.meaning = meaning
        self._by_name = {node.name: node for node in nodes}
        reached = self._depended_on(nodes).intersection(arguments) if arguments else ()
        self.arguments = {name for name in reached if self._rank(Value(name))}
        self._take(nodes)
        while self.arguments and (others := self._no_lists(nodes)):
            self.arguments -= others
            self._take(nodes)

    def _take(self, nodes: Iterable[Any]) -> None:
        """Finds out what is made of the arguments that are taken for lists."""
        self._kinds = {Value(name): _Kind.LIST for name in self.arguments}
        self.made: set[str] = set()
        for node in nodes if self.arguments else ():
            kinds = self._results(node)
            if kinds is not None:
                self.made.add(node.name)
                self._kinds |= {
                    Value(node.name, number): kind
                    for number, kind in enumerate(kinds)
                    if kind is not None
                }

    def _no_lists(self, nodes: Iterable[Any]) -> set[str]:
        """Arguments that an op takes which may run in vain, and not on a list of none."""
        return {
            text
            for node in nodes
            if node.name not in self.made
            and (family_of(node.op) is not None or (node.op in WRITES and not writes_rows(node.op)))
            for text in data_inputs(node)
            if text in self.arguments
        }

    def must_not(self, node: Any) -> bool:
        """Whether an op that is not made of lists writes rows, or takes what is made of them."""
        if node.name in self.made:
            return False
        takes_list = any(parse_value(text) in self._kinds for text in data_inputs(node))
        return takes_list or writes_rows(self.meaning(node)[0])

    def _depended_on(self, nodes: Iterable[Any]) -> set[str]:
        """What the rows and values depend on that are written to variables, or added up."""
        start = set()
        for node in nodes:
            op_type, _ = self.meaning(node)
            taken = (0, 1) if op_type == SEGMENT_SUM else ()
            if writes_rows(op_type):
                taken = (WRITES[op_type].rows or 0, WRITES[op_type].operand)
            start |= {parse_value(node.input[number]).op for number in taken}

        def needed(name: str) -> Iterable[str]:
            # A number is made of what it is made of, lists or none; rows are looked up in no list.
            if name not in self._by_name or self._is_one(Value(name)):
                return ()
            sources = [parse_value(text).op for text in data_inputs(self._by_name[name])]
            return sources[1:2] if self._by_name[name].op == LOOK_UP else sources

        return {*reachable(start, needed)}

    def _rank(self, value: Value) -> int | None:
        shape = self._shape_of(value.op, value.index)
        return None if shape is None else len(shape)

    def _results(self, node: Any) -> Sequence[_Kind | None] | None:
        """What an op yields; None of one that takes no list, or may not run on none."""
        values = [parse_value(text) for text in data_inputs(node)]
        kinds = [self._kinds.get(value) for value in values]
        if not any(kinds):
            return None
        op_type, first = self.meaning(node)
        if writes_rows(op_type):
            return () if self._is_written(op_type, values, kinds) else None
        of_table, family = {*kinds} <= {_Kind.TABLE, None}, family_of(op_type)
        if is_plain_write(op_type) or is_fused_update(op_type):
            return () if of_table else None
        if op_type in SAME:
            return kinds
        if of_table and family is not None:
            return (_Kind.TABLE,)
        if family is Family.ELEMENTWISE:
            return (_Kind.LIST,) if self._fit(Value(node.name), values, kinds) else None
        if family is Family.SUM:
            return (None,) if self._is_of_all(values, kinds) else None
        return self._made(op_type, node, values[first:], kinds[first:])

    def _made(
        self, op_type: str, node: Any, values: Sequence[Value], kinds: Sequence[_Kind | None]
    ) -> Sequence[_Kind | None] | None:
        match op_type, *kinds:
            case [str(found), _Kind.LIST] if found == UNIQUE:
                return (_Kind.LIST, _Kind.LIST)
            case [str(found), _Kind.LIST] if found == SHAPE:
                return (_Kind.SIZES,)
            case [str(found), _Kind.SIZES, None, None, None] if found == STRIDED_SLICE:
                return (_Kind.COUNT,) if self._is_first(node, values) else None
            case [str(found), _Kind.LIST, _Kind.LIST, _Kind.COUNT] if found == SEGMENT_SUM:
                return (_Kind.LIST,)
            case [str(found), _Kind.LIST, _Kind.LIST, None] if found == SEGMENT_SUM:
                return (_Kind.TABLE,)
            case [str(found), _Kind.LIST] if found == READ_ROWS:
                return (_Kind.LIST,) if attribute_in(node.attr, "batch_dims").i == 0 else None
            case [str(found), None, _Kind.LIST, None] if found == LOOK_UP:
                plain = attribute_in(node.attr, "batch_dims").i == 0
                return (_Kind.LIST,) if plain and self._elements(values[2]) == (0,) else None
        return None

    def _fit(self, result: Value, values: Sequence[Value], kinds: Sequence[_Kind | None]) -> bool:
        """Whether lists of one rank, and numbers, enter an op on elements."""
        rank = self._rank(result)
        return rank is not None and all(
            self._rank(value) == rank
            if kind is _Kind.LIST
            else kind is None and self._is_one(value)
            for value, kind in zip(values, kinds, strict=True)
        )

    def _is_one(self, value: Value) -> bool:
        """Whether a value has one element."""
        shape = self._shape_of(value.op, value.index)
        return shape is not None and all(size == 1 for size in shape)

    def _is_of_all(self, values: Sequence[Value], kinds: Sequence[_Kind | None]) -> bool:
        """Whether all elements of a list are added up, or likewise."""
        if kinds == [_Kind.LIST]:
            return True
        rank, axes = self._rank(values[0]), self._elements(values[-1])
        if kinds != [_Kind.LIST, None] or not rank or axes is None:
            return False
        return sorted(axis % rank for axis in axes) == [*range(rank)]

    def _is_written(
        self, op_type: str, values: Sequence[Value], kinds: Sequence[_Kind | None]
    ) -> bool:
        """Whether lists are written, with numbers alone beside them."""
        write = WRITES[op_type]
        if kinds[write.rows or 0] is not _Kind.LIST or kinds[write.operand] is not _Kind.LIST:
            return False
        beside = set(range(write.num_handles, len(values))) - {write.rows, write.operand}
        return all(kinds[n] is None and self._is_one(values[n]) for n in beside)

    def _is_first(self, node: Any, values: Sequence[Value]) -> bool:
        """Whether the first of the sizes is looked up."""
        bounds = {number: self._elements(values[number]) for number in (1, 2, 3)}
        known = {number: found for number, found in bounds.items() if found is not None}
        return is_first(Operation(node.op, node.name, tuple(values), node.attr, known, None, INT32))

    def _elements(self, value: Value) -> tuple[int, ...] | None:
        """The elements of a constant; None of what is none."""
        node = self._by_name.get(value.op)
        if node is None or node.op != "Const":
            return None
        return integers(attribute_in(node.attr, "value").tensor)


def all_or_none(
    scope: str, select: Select, lists: Mapping[str, int]
) -> tuple[list[Any], dict[str, str]]:
    """What hands a branch its lists: all of each where it is taken, else none.

    Args:
        scope: The name scope of the new ops.
        select: What selects by whether the branch is taken.
        lists: The lists, as NodeDefs name their operands, with their DataType numbers.

    Returns:
        NodeDefs, and for each list the name of what the branch gets.
    """
    bounds = {"all": [_ALL], "none": [0], "begin": [0], "stride": [1]}
    nodes = [_integers(f"{scope}/{name}", value) for name, value in bounds.items()]
    end = tf.compat.v1.NodeDef(name=f"{scope}/end", op="SelectV2")
    end.input.extend(select.inputs(f"{scope}/all", f"{scope}/none"))
    end.attr["T"].type = INT32
    nodes.append(end)
    handed = {}
    for number, (text, dtype) in enumerate(lists.items()):
        node = tf.compat.v1.NodeDef(name=f"{scope}/list_{number}", op=STRIDED_SLICE)
        node.input.extend([text, f"{scope}/begin", end.name, f"{scope}/stride"])
        node.attr["T"].type, node.attr["Index"].type = dtype, INT32
        node.attr[ALL_OR_NONE].b = True
        nodes.append(node)
        handed[text] = node.name
    return nodes, handed


def _integers(name: str, value: list[int]) -> Any:
    node = tf.compat.v1.NodeDef(name=name, op="Const")
    node.attr["dtype"].type = INT32
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, tf.int32))
    return node
