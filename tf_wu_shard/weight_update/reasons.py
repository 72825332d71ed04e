"""Why a branch was kept, beside what that keeps from being sharded."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tf_wu_shard.refusals import Refusal
from tf_wu_shard.step.capture import Captured
from tf_wu_shard.weight_update.analysis.types import Analysis, RefusedUpdate


def with_reasons(analysis: Analysis, captured: Captured) -> Analysis:
    """What was found, where updates in branches that are not written out say why not."""
    return dataclasses.replace(
        analysis,
        refused=tuple(
            _with_reason(refused, captured.kept_branches) for refused in analysis.refused
        ),
    )


def _with_reason(refused: RefusedUpdate, kept: Mapping[str, Refusal]) -> RefusedUpdate:
    refusal = refused.refusal
    if refusal.where not in kept:
        return refused
    return dataclasses.replace(refused, refusal=refusal.beside(kept[refusal.where]))
