"""ResourceApply* ops: a whole optimizer step in one kernel.

Each takes the handles of the weight and of its slots, then scalars, and one gradient. All in this
table compute, lane by lane, new weight and slots from old ones and the gradient, so on shards the
same kernel runs on the shards' handles. Which operand is which is read off the op's definition in
TensorFlow's training_ops.cc. Sparse and cross-element kernels are not here, and so are refused.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class FusedUpdate:
    """The signature of a fused update.

    Attributes:
        num_handles: How many leading operands are handles: the weight, then its slots.
        gradient: The number of the operand that is the gradient; all others are scalars.
    """

    num_handles: int
    gradient: int


FUSED: dict[str, FusedUpdate] = {
    "ResourceApplyGradientDescent": FusedUpdate(1, 2),
    "ResourceApplyProximalGradientDescent": FusedUpdate(1, 4),
    "ResourceApplyMomentum": FusedUpdate(2, 3),
    "ResourceApplyKerasMomentum": FusedUpdate(2, 3),
    "ResourceApplyAdagrad": FusedUpdate(2, 3),
    "ResourceApplyAdagradV2": FusedUpdate(2, 4),
    "ResourceApplyProximalAdagrad": FusedUpdate(2, 5),
    "ResourceApplyAdagradDA": FusedUpdate(3, 3),
    "ResourceApplyAdadelta": FusedUpdate(3, 6),
    "ResourceApplyAdam": FusedUpdate(3, 9),
    "ResourceApplyAdamWithAmsgrad": FusedUpdate(4, 10),
    "ResourceApplyAdaMax": FusedUpdate(3, 8),
    "ResourceApplyRMSProp": FusedUpdate(3, 7),
    "ResourceApplyCenteredRMSProp": FusedUpdate(4, 8),
    "ResourceApplyFtrl": FusedUpdate(3, 3),
    "ResourceApplyFtrlV2": FusedUpdate(3, 3),
    "ResourceApplyAddSign": FusedUpdate(2, 6),
    "ResourceApplyPowerSign": FusedUpdate(2, 6),
}
