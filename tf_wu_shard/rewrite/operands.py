"""What replicas contribute to the sums of gradients, in the shapes that the new graph relies on."""

from __future__ import annotations

from tf_wu_shard.analysis.types import GradientReduction
from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.rewrite.names import LEFT_WHOLE, scope_of


class Operands:
    """Emits the check of each shape that nothing proves, once."""

    def __init__(self, view: GraphView, builder: GraphBuilder) -> None:
        """Starts with nothing emitted.

        Args:
            view: The old graph.
            builder: Where to emit.
        """
        self._view = view
        self._builder = builder
        self._checked: dict[int, tuple[Value, ...]] = {}

    def of(self, reduction: GradientReduction) -> tuple[Value, ...]:
        """Per replica, its own gradient.

        Where the graph does not prove its shape, an EnsureShape fails before anything travels: the
        name of that op names the variable.
        """
        if reduction.ensured is None:
            return reduction.operands
        if reduction.key not in self._checked:
            scope = scope_of(reduction.ensured.variable or LEFT_WHOLE, "gradient_shape")
            self._checked[reduction.key] = tuple(
                self._ensured(value, reduction.ensured.shape, scope)
                for value in reduction.ensured.values
            )
        return self._checked[reduction.key]

    def _ensured(self, value: Value, shape: tuple[int, ...], scope: str) -> Value:
        device = self._view.producer(value).device
        types = {"T": self._view.dtype(value)}
        checked = self._builder.op("EnsureShape", [value], name=scope, device=device, types=types)
        proto = self._builder.nodes[-1].attr["shape"].shape
        proto.SetInParent()
        for length in shape:
            proto.dim.add().size = length
        return checked
