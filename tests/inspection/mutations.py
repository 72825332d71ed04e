"""Damaged SavedModels: real ones with bytes flipped, cut, spliced, and with hostile values."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from tf_wu_shard.tensorflow_private import model_protos

NUMBERS = (0, 1, -1, 2**31, 2**63 - 1, -(2**63), 7)
TEXTS = ("", "^", ":", "a:-1", "x" * 70_000, "\x1b[2J\x1b[31m", "<script>", "^^", "a:0:999999999")


def damaged(data: bytes, count: int, seed: int) -> Iterator[bytes]:
    """Makes damaged copies of a SavedModel.

    Args:
        data: The contents of its saved_model.pb.
        count: How many copies to make.
        seed: Chooses the damage.
    """
    chance = random.Random(seed)
    ways: tuple[Callable[[bytes, random.Random], bytes], ...]
    ways = (_flipped, _cut, _spliced, _hostile, _hostile, _hostile)
    for number in range(count):
        yield ways[number % len(ways)](data, chance)


def _flipped(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 8, 64))):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _cut(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data))]


def _spliced(data: bytes, chance: random.Random) -> bytes:
    begin, end = sorted(chance.sample(range(len(data)), 2))
    begin = max(begin, end - 500)
    at = chance.randrange(len(data))
    return data[:at] + data[begin:end] + data[at:]


def _hostile(data: bytes, chance: random.Random) -> bytes:
    """A copy that is well formed, with values that no one would write."""
    saved = model_protos.saved_model()
    saved.ParseFromString(data)
    meta_graph = saved.meta_graphs[0]
    functions = [f for f in meta_graph.graph_def.library.function if len(f.node_def) > 100]
    for _ in range(chance.choice((1, 1, 3, 10))):
        function = chance.choice(functions or list(meta_graph.graph_def.library.function))
        node = chance.choice(list(function.node_def))
        other = chance.choice(list(function.node_def))
        change = chance.choice((_nodes, _attributes, _signature, _objects))
        change(chance, meta_graph, function, node, other)
    return bytes(saved.SerializeToString())


def _nodes(chance: random.Random, meta_graph: Any, function: Any, node: Any, other: Any) -> None:
    kind = chance.randrange(7)
    if kind == 0:
        node.op = other.op
    elif kind == 1:
        node.name = chance.choice((other.name, *TEXTS))
    elif kind == 2:
        del node.input[:]
        node.input.extend(other.input)
    elif kind == 3 and node.input:
        node.input[chance.randrange(len(node.input))] = chance.choice(
            (*TEXTS, f"{other.name}:output:0", f"^{other.name}", f"{other.name}:z:7")
        )
    elif kind == 4:
        node.input.append(f"^{other.name}")
    elif kind == 5:
        function.node_def.remove(node)
    else:
        node.op = chance.choice(("StatefulPartitionedCall", "While", "If", "NoSuchOp"))
        node.attr["f"].func.name = function.signature.name


def _attributes(
    chance: random.Random, meta_graph: Any, function: Any, node: Any, other: Any
) -> None:
    attribute = node.attr[chance.choice((*node.attr, "N", "T", "_output_shapes", "value"))]
    kind = chance.randrange(6)
    if kind == 0:
        attribute.Clear()
    elif kind == 1:
        attribute.i = chance.choice(NUMBERS)
    elif kind == 2:
        attribute.type = chance.choice((0, 1, 7, 20, 21, 999))
    elif kind == 3:
        shape = attribute.list.shape.add()
        for _ in range(chance.choice((0, 1, 3, 300))):
            shape.dim.add().size = chance.choice(NUMBERS)
    elif kind == 4:
        attribute.tensor.dtype = 3
        attribute.tensor.tensor_shape.dim.add().size = chance.choice(NUMBERS)
        attribute.tensor.int_val.append(1)
    else:
        attribute.s = chance.choice((b"\xff\xfe", b"", b"x" * 1000))


def _signature(
    chance: random.Random, meta_graph: Any, function: Any, node: Any, other: Any
) -> None:
    arguments = function.signature.input_arg
    kind = chance.randrange(5)
    if kind == 0 and arguments:
        del arguments[chance.randrange(len(arguments))]
    elif kind == 1 and arguments:
        chance.choice(list(arguments)).type = chance.choice((0, 1, 20, 999))
    elif kind == 2:
        function.signature.name = chance.choice(TEXTS)
    elif kind == 3:
        function.control_ret["x"] = chance.choice(TEXTS)
    else:
        function.ret[chance.choice((*function.ret, "x"))] = chance.choice(TEXTS)


def _objects(chance: random.Random, meta_graph: Any, function: Any, node: Any, other: Any) -> None:
    objects = meta_graph.object_graph_def
    target = chance.choice(list(objects.nodes))
    kind = chance.randrange(6)
    if kind == 0:
        target.children.add(node_id=chance.choice((-1, 0, 5, 2**31 - 1)), local_name="x")
    elif kind == 1 and target.WhichOneof("kind") == "variable":
        target.variable.shape.dim.add().size = chance.choice(NUMBERS)
    elif kind == 2 and target.WhichOneof("kind") == "variable":
        target.variable.dtype = chance.choice((0, 1, 7, 20, 999))
    elif kind == 3 and target.WhichOneof("kind") == "variable":
        target.variable.name = chance.choice(TEXTS)
    elif kind == 4:
        target.Clear()
    else:
        bound = chance.choice(list(objects.concrete_functions.values())).bound_inputs
        bound.append(chance.choice((-1, 0, 10, 2**31 - 1)))
