"""Steps of several workers as text, as one of the workers has them."""

from __future__ import annotations

import types
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import tensorflow as tf  # noqa: F401  sets the package up

from tests.graph.text_graph import view_of
from tf_wu_shard.dtypes import FLOAT32
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView, VariableRef
from tf_wu_shard.grounds.dialect import CarriedReduction, CarriedSlices, Gathered
from tf_wu_shard.grounds.in_process.recognise import recognise_in_process
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.replicas import of_workers
from tf_wu_shard.step.capture import Captured
from tf_wu_shard.step.step import Step

# What collectives ask for: two members, or four, of a group.
GROUP = """
two = Const() {value=2}
four = Const() {value=4}
key = Const() {value=1}
"""

# The gradient of one replica for each worker, of two workers, and its sum.
REDUCED = (
    GROUP
    + """
x0 = Placeholder() [4] @d0
g0 = Square(x0) [4] @d0
sum0 = CollectiveReduceV2(g0, two, key) {merge_op=Add final_op=Id} [4] @d0
"""
)

STEP = "step0 = AssignSubVariableOp(w0, sum0) @d0\n"


def worker_step(
    text: str,
    *,
    copies: int = 1,
    workers: int = 2,
    variables: Mapping[str, tuple[int, ...]] | None = None,
    trainable: Collection[str] = ("w",),
    outputs: Sequence[str] = (),
    functions: Mapping[str, tuple[str, str, str]] | None = None,
    sparse: Sequence[CarriedSlices] = (),
) -> Step:
    """A step as one of the workers traces it.

    Args:
        text: The ops, see `text_graph`.
        copies: How many replicas each worker has.
        workers: How many workers there are.
        variables: Shapes of mirrored variables by key; else of `w` alone, of 4 elements.
        trainable: Keys of the trainable ones.
        outputs: The returned values.
        functions: The functions that it may call.
        sparse: Parts of sparse gradients, found beside what is found in the text.
    """
    shapes = {"w": (4,)} if variables is None else variables
    refs = {
        f"{key}{copy}": VariableRef(
            key, copy, copies, shape, FLOAT32, True, f"d{copy}", key in trainable, name=key
        )
        for key, shape in shapes.items()
        for copy in range(copies)
    }
    view = view_of(
        text,
        replicas=copies,
        outputs=outputs,
        functions=functions,
        refs=refs,
    )
    replicas = of_workers([f"d{number}" for number in range(copies)], copies * workers)

    def recognise(view: GraphView) -> tuple[list[CarriedReduction], list[Refusal]]:
        found, refused = recognise_in_process(view, replicas)
        return [*found, *sparse], refused

    dialect: Any = types.SimpleNamespace(
        replicas=replicas, recognise=recognise, adopt=lambda nodes: None
    )
    return Step(None, Captured(view, dict.fromkeys(shapes, object())), dialect)


def sparse_parts(name: str, copies: int = 1) -> list[CarriedSlices]:
    """The parts of a sparse gradient that ops of some name gather, of `v#`, `r#` and `shape#`."""
    each = range(copies)
    parts = zip(("v", "r", "shape"), Gathered, range(3), strict=True)
    return [
        CarriedSlices(
            operands=tuple(Value(f"{operand}{copy}") for copy in each),
            results=tuple(Value(f"{name}{copy}", place) for copy in each),
            divisor=1,
            carriers=tuple(f"{name}{copy}" for copy in each),
            gathered=part,
            order=(*each,),
        )
        for operand, part, place in parts
    ]
