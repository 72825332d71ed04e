"""The shapes that a graph proves, also where TensorFlow left dimensions open.

A batch whose size is known only when the step runs leaves shapes open that do not depend on it:
TensorFlow infers the shape of `Reshape(x, Pack(Prod(..), Prod(..)))` as [?, ?] although one of the
products is the product of known sizes. Here vectors of sizes are followed element by element, so
that every dimension that does not depend on the batch is found.

Nothing is guessed: what no shape function covers stays open.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tf_wu_shard.graph.dimensions import Dims, IntegersOf, Question, Rule, ShapeOf, merged
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.shape_functions import SHAPES
from tf_wu_shard.graph.size_functions import SIZES


class ShapeInference:
    """Answers questions about shapes, and remembers the answers."""

    def __init__(
        self,
        op_of: Callable[[str], Op],
        stated: Callable[[Value], Dims | None],
        constant: Callable[[Value], Any | None],
    ) -> None:
        """Prepares the inference.

        Args:
            op_of: The op of a name.
            stated: The dimensions that the graph states of a value, None for an open one; None
                where it does not even state the rank.
            constant: The TensorProto of a value that is a constant; None of all else.
        """
        self._op_of = op_of
        self._stated = stated
        self._constant = constant
        self._answers: dict[Question, Dims | None] = {}

    def shape(self, value: Value) -> Dims | None:
        """The dimensions of a value, None for an open one; None where the rank is open."""
        return self._answer(ShapeOf(value))

    def _answer(self, question: Question) -> Dims | None:
        """Answers a question by way of those that its answer depends on.

        The questions stand on a stack of their own, as a backward pass is deeper than Python's.
        """
        if question in self._answers:
            return self._answers[question]
        asked = [(question, self._rule(question))]
        # A question that comes back to itself has no answer.
        self._answers[question] = None
        answer: Dims | None = None
        while asked:
            question, rule = asked[-1]
            try:
                needed = rule.send(answer)
            except StopIteration as done:
                answer = self._answers[question] = done.value
                asked.pop()
                continue
            answer = self._answers.get(needed)
            if needed not in self._answers:
                self._answers[needed] = None
                asked.append((needed, self._rule(needed)))
        return answer

    def _rule(self, question: Question) -> Rule:
        value = question.value
        op = self._op_of(value.op)
        if isinstance(question, IntegersOf):
            return self._integers(op, value)
        return self._dims(op, value)

    def _dims(self, op: Op, value: Value) -> Rule:
        stated = self._stated(value)
        if stated is not None and None not in stated:
            return stated
        tensor = self._constant(value)
        if tensor is not None:
            return tuple(d.size if d.size >= 0 else None for d in tensor.tensor_shape.dim)
        function = SHAPES.get(op.type)
        if function is None or not op.inputs:
            return stated
        found = yield from function(op, value.index, self._constant)
        return merged(stated, found)

    def _integers(self, op: Op, value: Value) -> Rule:
        dims = yield ShapeOf(value)
        if dims is None or len(dims) > 1:
            return None
        function = SIZES.get(op.type, SIZES["Const"]) if op.inputs else SIZES["Const"]
        found = yield from function(op, value.index, self._constant)
        # The elements of a tensor of more dimensions do not come here, those of a broken one may.
        return found if found is None or dims == () or dims[0] in (None, len(found)) else None
