"""Made-up comparisons for the tests of what is printed and drawn; no compile stands behind them."""

from __future__ import annotations

from tf_wu_shard.tpu_compiler.comparison import Comparison, Compiled
from tf_wu_shard.tpu_compiler.figures import Figures, Memory
from tf_wu_shard.tpu_compiler.scopes import Scope
from tf_wu_shard.tpu_compiler.settings import Settings


def figures(cycles: int, milliseconds: float | None, **collectives: int) -> Figures:
    kinds = {kind.replace("_", "-"): count for kind, count in collectives.items()}
    return Figures(
        memory=Memory(700_000_000, 600_000_000, 500_000_000, 30_000_000),
        cycles=cycles,
        scope_cycles={scope.value: cycles // 4 for scope in Scope},
        uncosted_copy_bytes=2_000_000,
        transfer_bytes=0,
        collectives=kinds,
        collective_bytes=dict.fromkeys(kinds, 1000),
        milliseconds=milliseconds,
        pessimistic_milliseconds=None if milliseconds is None else 2 * milliseconds,
    )


def compared(replicated: Compiled, sharded: Compiled, topology: str = "v5e:4x4") -> Comparison:
    settings = Settings(topology=topology, model="mlp", gather_dtype=None)
    return Comparison(settings, 16, replicated, sharded, "sharded 3 of 4 variables", 2)


def compiled(found: Figures | None, error: str = "", **requested: int) -> Compiled:
    kinds = {kind.replace("_", "-"): count for kind, count in requested.items()}
    return Compiled(found, kinds, error, {"trace": 1.0, "compile": 2.0})


WHOLE = compiled(figures(6_000_000, 4.0, all_reduce=3), all_reduce=180)
SHARDED = compiled(
    figures(3_000_000, 2.0, reduce_scatter=2, all_gather=2), reduce_scatter=2, all_gather=2
)
