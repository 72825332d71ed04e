"""The attributes of ops: what operands say of them, what they say of results, how one is written.

Reads OpDefs, and writes AttrValues, by duck typing, with no TensorFlow.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from tf_wu_shard.errors import WuShardError
from tf_wu_shard.graph.op import attribute_in

# Which field of an AttrValue holds an attribute of a kind.
_FIELDS = {"type": "type", "int": "i", "float": "f", "bool": "b", "string": "s", "shape": "shape"}


@dataclasses.dataclass(frozen=True)
class Signature:
    """What an OpDef declares, as plain data: reading protocol buffers takes most of an op's time.

    Attributes:
        name: The op type.
        operands: Of each argument, the attributes that hold how many operands it takes, the list of
            their types, and the type of all of them; "" for none.
        results: Of each result, the same, and its type where no attribute holds it.
        kinds: The kind of each attribute, such as "type" or "list(shape)".
    """

    name: str
    operands: tuple[tuple[str, str, str], ...]
    results: tuple[tuple[str, str, str, int], ...]
    kinds: Mapping[str, str]

    @classmethod
    def known(cls, definition: Any | None) -> Signature | None:
        """Reads an OpDef; None where TensorFlow has none."""
        return None if definition is None else cls.of(definition)

    @classmethod
    def of(cls, definition: Any) -> Signature:
        """Reads an OpDef."""
        return cls(
            definition.name,
            tuple((a.number_attr, a.type_list_attr, a.type_attr) for a in definition.input_arg),
            tuple(
                (r.number_attr, r.type_list_attr, r.type_attr, r.type)
                for r in definition.output_arg
            ),
            {declared.name: declared.type for declared in definition.attr},
        )

    def result_types(self, attributes: Mapping[str, Any]) -> list[int]:
        """The element type of each result, as DataType numbers.

        Args:
            attributes: The op's attributes, AttrValues by name.
        """
        types: list[int] = []
        for number, listed, single, own in self.results:
            if listed:
                types.extend(attribute_in(attributes, listed).list.type)
                continue
            dtype = attribute_in(attributes, single).type if single else own
            types.extend([dtype] * (attribute_in(attributes, number).i if number else 1))
        return types

    def attributes_of(self, operands: Sequence[int]) -> dict[str, Any]:
        """The attributes that say of what type, and how many, an op's operands are.

        Args:
            operands: The element type of each operand, as a DataType number.

        Returns:
            By name: a type, a number of operands, or a list of types.

        Raises:
            WuShardError: The op does not take so many operands.
        """
        found: dict[str, Any] = {}
        several = sum(bool(number or listed) for number, listed, _ in self.operands)
        rest = len(operands) - (len(self.operands) - several)
        if several > 1 or rest < 0 or (rest and not several):
            raise WuShardError(f"{self.name} does not take {len(operands)} operands")
        start = 0
        for number, listed, single in self.operands:
            count = rest if number or listed else 1
            own = operands[start : start + count]
            start += count
            if number:
                found[number] = count
            if listed:
                found[listed] = list(own)
            elif single and own:
                found[single] = own[0]
        return found


def write(attribute: Any, kind: str, value: Any) -> None:
    """Gives an AttrValue a value of the kind that the OpDef declares, or another AttrValue's.

    Args:
        attribute: The AttrValue, an empty one.
        kind: Its kind, such as "type" or "list(shape)".
        value: A number (of an element type its DataType number), a string, a shape, a list of
            these, or an AttrValue.
    """
    if isinstance(value, type(attribute)):
        attribute.CopyFrom(value)
        return
    inner = kind[5:-1] if kind.startswith("list(") else ""
    if inner:
        written = getattr(attribute.list, _FIELDS[inner])
        if inner == "shape":
            for shape in value:
                _write_shape(written.add(), shape)
        else:
            written.extend(_encoded(one) for one in value)
    elif kind == "shape":
        _write_shape(attribute.shape, value)
    else:
        setattr(attribute, _FIELDS[kind], _encoded(value))


def _encoded(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def _write_shape(written: Any, shape: Sequence[int]) -> None:
    written.SetInParent()
    for size in shape:
        written.dim.add().size = size
