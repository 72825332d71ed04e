"""What replicas contribute to the sums of gradients, in the shapes that the new graph relies on."""

from __future__ import annotations

from tf_wu_shard.graph.op import Value
from tf_wu_shard.step.reductions import GradientReduction
from tf_wu_shard.weight_update.rewrite.emission import Emission
from tf_wu_shard.weight_update.rewrite.names import LEFT_WHOLE


class Operands:
    """Emits the check of each shape that nothing proves, once."""

    def __init__(self, emission: Emission) -> None:
        """Starts with nothing emitted.

        Args:
            emission: Where to emit.
        """
        self._emission = emission
        self._checked: dict[int, tuple[Value, ...]] = {}

    def of(self, reduction: GradientReduction) -> tuple[Value, ...]:
        """Per replica, its own gradient.

        Where the graph does not prove its shape, an EnsureShape fails before anything travels: the
        name of that op names the variable.
        """
        if reduction.ensured is None:
            return reduction.operands
        if reduction.key not in self._checked:
            variable = reduction.ensured.variable or LEFT_WHOLE
            self._checked[reduction.key] = tuple(
                self._ensured(value, reduction.ensured.shape, variable)
                for value in reduction.ensured.values
            )
        return self._checked[reduction.key]

    def _ensured(self, value: Value, shape: tuple[int, ...], variable: str) -> Value:
        device = self._emission.view.producer(value).device
        at = self._emission.at(device, variable, "gradient_shape")
        return at.op("EnsureShape", [value], "", shape=shape)
