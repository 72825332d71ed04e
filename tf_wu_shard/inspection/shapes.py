"""The shapes of values in a graph out of a file.

Files mostly say them. Where one does not, only what follows from a variable's shape through
elementwise ops is known: that is the update itself.
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
        self._from_fused(view)

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
        if op.type in ("Identity", "IdentityN"):
            return tuple(map(self.of, op.inputs))
        if family_of(op.type) is Family.ELEMENTWISE:
            return (_broadcast([self.of(value) for value in op.inputs]),)
        return ()

    def _from_fused(self, view: GraphView) -> None:
        """A fused update's kernel takes no gradient of another shape than the weight's."""
        for op in view:
            ref = self._variables.get(op.inputs[0].op) if op.type in FUSED else None
            if ref is not None:
                gradient = op.inputs[FUSED[op.type].gradient]
                if gradient.index == 0 and not self.known.get(gradient.op):
                    self.known[gradient.op] = (ref.shape,)


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
