"""The shapes that a file states. What follows from them, `GraphView` infers.

Files mostly state the shapes of all values. Where one does not, variables, constants and arguments
have theirs.
"""

from __future__ import annotations

from collections.abc import Mapping

from tf_wu_shard.graph.calls import is_call
from tf_wu_shard.graph.dimensions import Dims
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView, VariableRef
from tf_wu_shard.model_files.shapes import dims_of
from tf_wu_shard.rules.variables import READ

_STATED = "_output_shapes"


class Shapes:
    """The stated shapes of one graph, for a view that asks for them before it is whole."""

    def __init__(self) -> None:
        self._view: GraphView | None = None
        self._variables: Mapping[str, VariableRef] = {}

    def read(self, view: GraphView, variables: Mapping[str, VariableRef]) -> None:
        """Says what is asked for.

        Args:
            view: The graph.
            variables: What is known of its handles.
        """
        self._view = view
        self._variables = variables

    def of(self, value: Value) -> Dims | None:
        """The stated dimensions of a value, None for open ones; None where nothing is stated."""
        op = self._view.ops.get(value.op) if self._view is not None else None
        if op is None:
            return None
        attr = op.node.attr
        stated = attr[_STATED].list.shape if _STATED in attr else ()
        if not stated and is_call(op.type) and "output_shapes" in attr:
            stated = attr["output_shapes"].list.shape
        if value.index < len(stated):
            return dims_of(stated[value.index])
        return self._of_source(op)

    def _of_source(self, op: Op) -> Dims | None:
        """The shape of what a variable holds or an argument is."""
        if op.type == READ:
            ref = self._variables.get(op.inputs[0].op)
            return ref.shape if ref is not None else None
        if op.type == "Placeholder" and "shape" in op.node.attr:
            return dims_of(op.attribute("shape").shape)
        return None
