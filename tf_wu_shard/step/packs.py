"""Takes packed reductions apart: several gradients that travel as one vector.

A strategy flattens and concatenates gradients, reduces the pack, splits it and reshapes the parts.
Summing commutes with concatenation, so each part is a reduction of its own. Where the sizes of
parts are open, the sum must be split by the very sizes that the parts have when the step runs.
"""

from __future__ import annotations

from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.dialect import CarriedReduction

Part = tuple[tuple[Value, ...], tuple[Value, ...]]


def parts(view: GraphView, reduction: CarriedReduction) -> list[Part]:
    """The operands and results, by replica, of each gradient in one carried reduction."""
    packs = [view.producer(operand) for operand in reduction.operands]
    splits = [_only_split(view, result) for result in reduction.results]
    whole = [(reduction.operands, reduction.results)]
    found = [split for split in splits if split is not None]
    if len(found) < len(splits):
        return whole
    if all(len(view.results(split.name)) == 1 for split in found):
        # A pack of one gradient: nothing to concatenate, and a split into one part.
        return [(reduction.operands, tuple(Value(split.name) for split in found))]
    if any(pack.type != "ConcatV2" for pack in packs):
        return whole
    pieces = [pack.inputs[:-1] for pack in packs]
    if len({len(own) for own in pieces}) != 1:
        return whole
    if not all(_cut_as_packed(view, own, cut) for own, cut in zip(pieces, found, strict=True)):
        return whole
    return [
        (tuple(own[i] for own in pieces), tuple(Value(split.name, i) for split in found))
        for i in range(len(pieces[0]))
    ]


def unflattened(view: GraphView, value: Value) -> Value:
    """What a vector of all elements of a tensor was made of; the value itself if it is none."""
    op = view.producer(value)
    # A pack of one vector passes it on.
    while op.type == "Identity":
        op = view.producer(op.inputs[0])
    if op.type == "Reshape" and view.integers(op.inputs[1]) == (-1,):
        return op.inputs[0]
    return value


def _only_split(view: GraphView, result: Value) -> Op | None:
    """The SplitV that takes a packed sum apart, if nothing else looks at the sum."""
    consumers = view.consumers(result)
    if len(consumers) == 1 and consumers[0][0].type == "SplitV" and consumers[0][1] == 0:
        return consumers[0][0]
    return None


def _cut_as_packed(view: GraphView, pieces: tuple[Value, ...], split: Op) -> bool:
    """Whether a sum is split where its pieces were put together."""
    if len(view.results(split.name)) != len(pieces):
        return False
    open_pieces = []
    for number, piece in enumerate(pieces):
        packed, cut = view.shape(piece), view.shape(Value(split.name, number))
        if packed is None or cut is None:
            open_pieces.append((number, piece))
        elif packed != cut or len(packed) != 1:
            return False
    # A split takes the whole sum, so that one piece has what the others leave.
    return len(open_pieces) <= 1 or all(
        _measured(view, split, number) == unflattened(view, piece) for number, piece in open_pieces
    )


def _measured(view: GraphView, split: Op, number: int) -> Value | None:
    """The tensor whose number of elements is the size of a part of a split; None if there is none.

    A strategy has it as Prod(Shape(tensor)).
    """
    sizes = view.producer(split.inputs[1])
    if sizes.type != "Pack" or number >= len(sizes.inputs):
        return None
    size = view.producer(sizes.inputs[number])
    if size.type == "Size":
        return size.inputs[0]
    if size.type != "Prod" or view.integers(size.inputs[1]) != (0,):
        return None
    shape = view.producer(size.inputs[0])
    return shape.inputs[0] if shape.type == "Shape" else None
