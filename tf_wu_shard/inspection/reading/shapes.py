"""The shapes of values in a graph out of a file.

Files mostly say them. Where one does not, only what follows from a variable's shape through
elementwise ops and sums over replicas is known, forwards from what reads the variable and backwards
from what is written to it: that is the update itself, up to its gradient.
"""

from __future__ import annotations

from collections.abc import Mapping

from tf_wu_shard.analysis.accesses import is_call
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView, VariableRef
from tf_wu_shard.model_files.shapes import shape_of
from tf_wu_shard.rules.fused import FUSED
from tf_wu_shard.rules.registry import Family, family_of
from tf_wu_shard.rules.variables import READ

_SAID = "_output_shapes"

# Ops whose result has the shape of their first operand; what else they take has a shape of its own.
_PASSED_ON = frozenset({"Identity", "CrossReplicaSum"})

# Writes whose kernels take no operand of another shape than the variable's.
_ADDED_TO = frozenset({"AssignAddVariableOp", "AssignSubVariableOp"})
Shape = tuple[int, ...] | None


class Shapes:
    """The shapes of the values of one graph.

    Attributes:
        known: For each op, by name, the shapes of its results.
    """

    def __init__(self) -> None:
        self.known: dict[str, tuple[Shape, ...]] = {}
        self._variables: Mapping[str, VariableRef] = {}

    def read(self, view: GraphView, variables: Mapping[str, VariableRef]) -> None:
        """Reads the shapes of a graph.

        Args:
            view: The graph.
            variables: What is known of its handles.
        """
        self._variables = variables
        for op in view:
            said = op.node.attr[_SAID].list.shape if _SAID in op.node.attr else ()
            self.known[op.name] = tuple(map(shape_of, said)) or self._followed(op)
        if self._from_written(view):
            for op in view:
                if None in self.known[op.name]:
                    self.known[op.name] = self._followed(op)

    def of(self, value: Value) -> Shape:
        """The shape of a value, or None where it is not known."""
        shapes = self.known.get(value.op, ())
        return shapes[value.index] if value.index < len(shapes) else None

    def _followed(self, op: Op) -> tuple[Shape, ...]:
        if op.type == READ:
            ref = self._variables.get(op.inputs[0].op)
            return (ref.shape if ref is not None else None,)
        if op.type == "Const" and "value" in op.node.attr:
            return (shape_of(op.node.attr["value"].tensor.tensor_shape),)
        if op.type == "Placeholder" and "shape" in op.node.attr:
            return (shape_of(op.node.attr["shape"].shape),)
        if is_call(op.type) and "output_shapes" in op.node.attr:
            return tuple(map(shape_of, op.node.attr["output_shapes"].list.shape))
        if op.type == "IdentityN":
            return tuple(map(self.of, op.inputs))
        if op.type in _PASSED_ON:
            return (self.of(op.inputs[0]),)
        if family_of(op.type) is Family.ELEMENTWISE:
            return (_broadcast([self.of(value) for value in op.inputs]),)
        return ()

    def _from_written(self, view: GraphView) -> bool:
        """What follows backwards, the last op first; whether anything does.

        The kernel of a fused update takes no gradient of another shape than the weight's, nor do
        those that add to a variable or subtract from it take any other operand.
        """
        found = False
        for op in reversed(list(view)):
            if op.type in FUSED or op.type in _ADDED_TO:
                ref = self._variables.get(op.inputs[0].op)
                number = FUSED[op.type].gradient if op.type in FUSED else 1
                operand, shape = op.inputs[number], ref.shape if ref is not None else None
            else:
                operands = [v for v in op.inputs if self.of(v) is None]
                if len(operands) != 1 or not self._keeps_shape(op):
                    continue
                operand, shape = operands[0], self.of(Value(op.name))
            if shape is not None and self.of(operand) is None and self._is_only(view, operand):
                self.known[operand.op] = (shape,)
                found = True
        return found

    def _keeps_shape(self, op: Op) -> bool:
        """Whether an op's result has the shape of its one operand that is no scalar."""
        if op.type in _PASSED_ON:
            return True
        others = [shape for value in op.inputs if (shape := self.of(value)) is not None]
        return family_of(op.type) is Family.ELEMENTWISE and not any(others)

    def _is_only(self, view: GraphView, value: Value) -> bool:
        """Whether a value is the only one of its op, as far as is known."""
        return (
            value.index == 0 and len(self.known[value.op]) <= 1 and value.op not in view.variables
        )


def _broadcast(shapes: list[Shape]) -> Shape:
    """The shape that NumPy gives the result of an elementwise op."""
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes) or not known:
        return None
    rank = max(map(len, known))
    result = []
    for sizes in zip(*((1,) * (rank - len(shape)) + shape for shape in known), strict=True):
        longest = {size for size in sizes if size != 1}
        if len(longest) > 1:
            return None
        result.append(longest.pop() if longest else 1)
    return tuple(result)
