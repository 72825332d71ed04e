"""What is said of what would not pay, cannot be stored in shards, or is not compiled."""

from __future__ import annotations

import inspect
import re

from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.refusals import SMALL, Compiling, Plan, Storage


def test_small_is_what_min_elements_decides() -> None:
    assert {kind for kind in Plan if "below min_elements=" in kind.says} == SMALL


def test_an_option_that_lifts_a_refusal_is_one_that_there_is() -> None:
    known = set(inspect.signature(ShardingOptions).parameters)
    cures = " ".join(kind.cure for group in (Plan, Storage, Compiling) for kind in group)
    named = set(re.findall(r"\b(min_\w+|compile_\w+)", cures))
    assert named and named <= known


def test_a_refusal_of_storage_can_name_its_variable() -> None:
    for kind in Storage:
        detail = dict.fromkeys(kind.details, "x")
        assert kind.at("", **detail).about("its slot m").reason.startswith("its slot m ")
