"""What a comparison on several workers shows besides: on a terminal, and on the report page."""

from __future__ import annotations

from tf_wu_shard.demo.comparison import Comparison
from tf_wu_shard.demo.runs import ClusterFigures, Run
from tf_wu_shard.report.html import Tile
from tf_wu_shard.report.quantities import byte_text, second_text
from tf_wu_shard.report.tables import Table

# Of a digest, as much as tells two apart at a glance.
_SHOWN = 16

_FROM_WHEN = "once all workers were there"


def lines(comparison: Comparison) -> list[str]:
    """Lines for a terminal; none where the runs were not on several workers."""
    both = _both(comparison)
    if both is None:
        return []
    before, after = (_loopback(one) for one in both)
    found = [f"loopback a step       {before} -> {after}"]
    if both[1].votes_s is not None:
        found.append(f"votes on the step     {second_text(both[1].votes_s)}, {_FROM_WHEN}")
    hashes = (f"  {name:<20}{said}" for name, said in _weights(comparison))
    return [*found, "weights, SHA-256", *hashes]


def tiles(comparison: Comparison) -> tuple[Tile, ...]:
    """Figures to be seen first."""
    both = _both(comparison)
    if both is None:
        return ()
    before, after = both
    found = [Tile("loopback, a step", _loopback(after), f"was {_loopback(before)}")]
    if after.votes_s is not None:
        found.append(Tile("votes on the step", second_text(after.votes_s), _FROM_WHEN))
    return tuple(found)


def tables(comparison: Comparison) -> tuple[Table, ...]:
    """The hash of each worker's weights in each run."""
    if _both(comparison) is None:
        return ()
    runs = _runs(comparison)
    of_workers = zip(*(cluster.digests for _, cluster in runs), strict=True)
    return (
        Table(
            title="Weights of each worker",
            columns=("", *(name for name, _ in runs)),
            rows=tuple(
                (f"worker {worker}", *(digest[:_SHOWN] for digest in digests))
                for worker, digests in enumerate(of_workers)
            ),
            note=(
                f"The first {_SHOWN} digits of a SHA-256 of all weights after the last step."
                " Workers of one run must have the same bits; runs that sum in other orders need"
                " not."
            ),
        ),
    )


def _weights(comparison: Comparison) -> list[tuple[str, str]]:
    """Of each run, the digest of its weights and whether all workers have it."""
    found = []
    for name, cluster in _runs(comparison):
        shown = list(dict.fromkeys(digest[:_SHOWN] for digest in cluster.digests))
        alike = "equal" if len(set(cluster.digests)) == 1 else "NOT equal"
        found.append((name, f"{', '.join(shown)}   {alike} on all {len(cluster.digests)} workers"))
    return found


def _runs(comparison: Comparison) -> list[tuple[str, ClusterFigures]]:
    all_runs: tuple[Run, ...] = (comparison.unsharded, comparison.reordered, comparison.sharded)
    return [(run.mode.value, run.cluster) for run in all_runs if run.cluster is not None]


def _both(comparison: Comparison) -> tuple[ClusterFigures, ClusterFigures] | None:
    """Figures of the unsharded and of the sharded run, where there are both."""
    before, after = comparison.unsharded.cluster, comparison.sharded.cluster
    return None if before is None or after is None else (before, after)


def _loopback(cluster: ClusterFigures) -> str:
    return "not counted" if cluster.loopback_bytes is None else byte_text(cluster.loopback_bytes)
