"""A made-up comparison for the tests of what is printed and drawn; no run stands behind it."""

from __future__ import annotations

import dataclasses

from tf_wu_shard.demo.agreement import Agreement
from tf_wu_shard.demo.comparison import Comparison
from tf_wu_shard.demo.compilation import Compilation
from tf_wu_shard.demo.runs import ClusterFigures, Mode, Run, ShardedVariable, Sharding
from tf_wu_shard.tpu_compiler.settings import Settings

SHARDING = Sharding(
    verdict="partly sharded",
    text="sharded 1 of 2 variables over 8 replicas",
    variables=(ShardedVariable("dense/kernel", (3, 5), "flat 15/8", ("m", "v"), 0, 1),),
    left_alone=(("dense/bias", "3 elements, below min_elements=1024"),),
    notes=("a note",),
    slot_bytes_unsharded=12_800_000,
    slot_bytes_sharded=1_600_000,
    pass_ms=1.5,
    trace_ms=9.0,
)
BASELINE = Run(Mode.UNSHARDED, 18, (2.0, 1.0, 0.5), (0.1, 0.1), 9.0, 0.25, 2_000_000_000, None)

NOT_COMPILED = Compilation(
    Settings(model="mlp", topology="v5e:2x2"), missing="the TPU compiler is not installed"
)


def comparison(
    *, sharding: Sharding | None = SHARDING, difference: float = 1e-7, baseline: Run = BASELINE
) -> Comparison:
    """Returns a comparison whose weights differ by `difference`, where 4e-6 are allowed."""
    sharded = dataclasses.replace(
        BASELINE,
        mode=Mode.SHARDED,
        losses=(2.0, 1.0, 0.5000001),
        step_s=(0.05, 0.05),
        peak_bytes=1_000_000_000,
        sharding=sharding,
    )
    return Comparison(
        task="digits",
        replicas=8,
        unsharded=baseline,
        reordered=dataclasses.replace(BASELINE, mode=Mode.REORDERED, losses=(2.0, 1.0, 0.5000002)),
        sharded=sharded,
        agreements=(
            Agreement("losses", 0.0, "losses", 4e-7),
            Agreement("weights", difference, "dense/kernel", 1e-6),
        ),
    )


def comparison_on_workers(*, last_digest: str = "12" * 32) -> Comparison:
    """Returns one of two workers, whose last ends the sharded run with weights of that digest."""
    compared = dataclasses.replace(comparison(), task="workers_language_model", replicas=2)
    whole = ClusterFigures(("ab" * 32,) * 2, 42_000_000.0, None)
    own = ClusterFigures(("12" * 32, last_digest), 21_000_000.0, 0.0125)
    return dataclasses.replace(
        compared,
        unsharded=dataclasses.replace(compared.unsharded, cluster=whole),
        reordered=dataclasses.replace(compared.reordered, cluster=whole),
        sharded=dataclasses.replace(compared.sharded, cluster=own),
    )
