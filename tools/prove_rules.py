"""Proves the rules by which an update's ops work on shards.

    python -m tools.prove_rules [--op NAME ...] [--seed N]

Runs whole and in shards every op that has a rule for elements (elementwise ops, relabels, sums,
writes and fused updates), or for rows of a table and the entries that name them (these, look-ups,
sums of entries, scatters and sparse fused updates): random shapes, element types and numbers of
replicas, values that differ from element to element, NaN in the padding. Prints for each whether
its rule is proved, refused (it takes none of the calls) or wrong. Exits with 1 if one is wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Proves, prints a line for each op, and returns the exit status."""
    parser = argparse.ArgumentParser(prog="prove_rules", description="Proves the rules of ops.")
    parser.add_argument("--op", action="append", metavar="NAME", help="only this op type")
    parser.add_argument("--seed", type=int, default=7, help="of values, shapes and replicas")
    chosen = parser.parse_args(arguments)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # Loads TensorFlow.
    from tf_wu_shard.placement import Cut
    from tools.rule_proof.proofs import PROVED, REFUSED, WRONG, prove, rules

    counts = {PROVED: 0, REFUSED: 0, WRONG: 0}
    known, named = rules(), chosen.op or ()
    wanted = [rule for rule in known if not named or rule[0] in named]
    unknown = set(named) - {op_type for op_type, _ in wanted}
    for op_type, cut in (*wanted, *((op_type, Cut.ELEMENTS) for op_type in sorted(unknown))):
        verdict = prove(op_type, cut, chosen.seed)
        counts[verdict.outcome] += 1
        calls = f"{verdict.count} calls" if verdict.count else ""
        line = f"{verdict.outcome:8} {op_type:42} {cut.value:8} {calls:10} {verdict.detail}"
        print(line.rstrip())
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    return 1 if counts[WRONG] else 0


if __name__ == "__main__":
    sys.exit(main())
