"""Train steps as text: what a strategy traces, cut down to what the analysis looks at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.graph.text_graph import dialect_of, view_of
from tf_wu_shard.graph.view import VariableRef
from tf_wu_shard.weight_update.analysis.analyze import analyze
from tf_wu_shard.weight_update.analysis.types import Analysis

# The gradient of each replica and its sum; `sum#` is the reduced gradient.
REDUCED = """
size = Const() {value=2}
key = Const() {value=1}
x# = Placeholder() [4] @d#
g# = Square(x#) [4] @d#
sum# = CollectiveReduceV2(g#, size, key) {merge_op=Add final_op=Id} [4] @d#
"""

# The write of a weight, to be told of what.
STEP = "step# = AssignSubVariableOp(w#, {}) @d#\n"

# Momentum: m += sum; w -= m.
MOMENTUM = """
put# = AssignAddVariableOp(m#, sum#) @d#
moved# = ReadVariableOp(m#) [4] @d# ^put#
step# = AssignSubVariableOp(w#, moved#) @d#
"""

SHAPES = {"w": (4,), "m": (4,)}


def analysis_of(
    text: str,
    *,
    replicas: int = 2,
    variables: Mapping[str, tuple[int, ...]] | None = None,
    trainable: Iterable[str] = ("w",),
    outputs: Sequence[str] = (),
    functions: Mapping[str, tuple[str, str, str]] | None = None,
    refs: Mapping[str, VariableRef] | None = None,
    dialect: Any = None,
    **keywords: Any,
) -> Analysis:
    """The analysis of a step: `REDUCED`, then `text`."""
    text = REDUCED.replace("value=2", f"value={replicas}") + text
    view = view_of(
        text,
        replicas=replicas,
        variables=SHAPES if variables is None else variables,
        trainable=trainable,
        outputs=outputs,
        functions=functions,
        refs=refs,
        **keywords,
    )
    return analyze(view, dialect or dialect_of(replicas))


def reasons_of(analysis: Analysis) -> dict[str, str]:
    """For each refused variable, the reason and the place."""
    return {r.variable: str(r.refusal) for r in analysis.refused}


def refused(text: str, **keywords: Any) -> str:
    """The one reason why the update of w is left alone."""
    analysis = analysis_of(text, **{"variables": {"w": (4,)}, **keywords})
    assert analysis.updates == ()
    (reason,) = reasons_of(analysis).values()
    return reason


def sharded(analysis: Analysis) -> list[str]:
    """The names of the updates that are found."""
    return [u.name for u in analysis.updates]
