"""What reduced gradients reach, and which of them must be followed together."""

from __future__ import annotations

import dataclasses

from tf_wu_shard.graph.op import Op
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.placement import Refusal
from tf_wu_shard.rules.handles import num_written


@dataclasses.dataclass
class Flood:
    """What one reduced gradient reaches, or several that reach one variable.

    Attributes:
        keys: The reductions.
        variables: Keys of the variables that are written with them, in the order of the flood.
        refusal: What it could not be followed through, if anything.
    """

    keys: set[int]
    variables: list[str]
    refusal: Refusal | None


def entangled(floods: list[Flood]) -> list[Flood]:
    """Joins floods that share a variable: their updates must be sharded together."""
    owner: dict[str, Flood] = {}
    joined: list[Flood] = []
    for flood in floods:
        others = {id(owner[v]): owner[v] for v in flood.variables if v in owner}
        target = flood
        if others:
            target, *rest = others.values()
            for other in (*rest, flood):
                target.keys |= other.keys
                target.variables += [v for v in other.variables if v not in target.variables]
                target.refusal = target.refusal or other.refusal
                joined = [f for f in joined if f is not other]
        else:
            joined.append(flood)
        for variable in target.variables:
            owner[variable] = target
    return joined


def mirrored_handles(view: GraphView, num_replicas: int) -> dict[str, dict[int, str]]:
    """For each mirrored variable with a component on every replica, its handles by replica."""
    handles: dict[str, dict[int, str]] = {}
    for op, ref in view.variables.items():
        if ref.mirrored and ref.num_replicas == num_replicas and ref.shape is not None:
            handles.setdefault(ref.key, {})[ref.replica] = op
    return handles


def written_keys(view: GraphView, op: Op) -> list[str]:
    """Keys of the variables that an op writes; of an unknown one, the op that yields its handle."""
    refs = [view.variables.get(value.op) for value in op.inputs[: num_written(op.type)]]
    return [ref.key if ref else value.op for ref, value in zip(refs, op.inputs, strict=False)]
