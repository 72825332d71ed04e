"""Dialects for a step that was traced on one device: what if N replicas ran it?

They take each gradient for summed where it enters its update, or where they are given, and plan as
replicas in one process or on a TPU would. They only ever read: nothing is emitted for a step that
reduces nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.dialect import CarriedReduction, CarriedSlices, Gathered
from tf_wu_shard.grounds.in_process.collectives import InProcess
from tf_wu_shard.grounds.tpu.collectives import TpuCluster, not_scattered
from tf_wu_shard.grounds.tpu.torus import Torus
from tf_wu_shard.inspection.one_device.entering import Entering
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.replicas import of_one_program

Recognised = tuple[list[CarriedReduction], list[Refusal]]


class ReplicasInProcess(InProcess):
    """N replicas in one process, of a step traced on one device."""

    def __init__(
        self, num_replicas: int, gradients: Sequence[CarriedReduction] | None = None
    ) -> None:
        """Makes the dialect.

        Args:
            num_replicas: How many replicas would run the step.
            gradients: What is summed; None to find where gradients enter their updates.
        """
        super().__init__(of_one_program(num_replicas))
        self._gradients = gradients

    def recognise(self, view: GraphView) -> Recognised:
        """See `Dialect.recognise`."""
        return entering_gradients(view) if self._gradients is None else ([*self._gradients], [])


class ReplicasOnTpu(TpuCluster):
    """The replicas of a TPU, of a step traced on one device."""

    def __init__(self, torus: Torus, gradients: Sequence[CarriedReduction] | None = None) -> None:
        """Makes the dialect.

        Args:
            torus: The replicas that would run the step, and their groups.
            gradients: What is summed; None to find where gradients enter their updates.
        """
        super().__init__("", torus)
        self._gradients = gradients

    def recognise(self, view: GraphView) -> Recognised:
        """See `Dialect.recognise`. Gradients of types that no TPU reduces to shards are refused."""
        if self._gradients is None:
            carried, refusals = entering_gradients(view)
        else:
            carried, refusals = [*self._gradients], []
        refused: dict[tuple[str, ...], Refusal] = {}
        for reduction in carried:
            is_rows = isinstance(reduction, CarriedSlices) and reduction.gathered is Gathered.ROWS
            refusal = None if is_rows else not_scattered(view, reduction.results[0])
            if refusal is not None:
                refused[reduction.carriers] = refusal
        found = [reduction for reduction in carried if reduction.carriers not in refused]
        return found, [*refusals, *refused.values()]


def entering_gradients(view: GraphView) -> Recognised:
    """Takes each gradient of a step traced on one device for summed where it enters its update.

    Args:
        view: The graph.

    Returns:
        The gradients, and why weights have none.
    """
    entering = Entering(view)
    carried = [CarriedReduction((v,), (v,), 1, (v.op,)) for v in entering.gradients]
    for gradient in entering.sparse:
        parts = {Gathered.VALUES: gradient.values, Gathered.ROWS: gradient.rows}
        # Of all updates, none has the same rows; two might have values by one op.
        carriers = (gradient.rows.op,)
        carried += [
            CarriedSlices((value,), (value,), 1, carriers, kind, (0,))
            for kind, value in parts.items()
        ]
    return carried, entering.refusals
