"""A step that XLA compiles does what it does without the flag, and the report says why."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from tests.equivalence.own_process import answer_of
from tests.workers.processes import launch

GROUNDS = ("auto", "collective", "workers")

# What TensorFlow says of a step that exchanges something, where XLA compiles it for CPU devices.
_ERRORS = {"workers": "UnimplementedError"}

_REASON = "XLA compiles the function as a whole (jit_compile=True)"


@functools.cache
def found(ground: str) -> list[Any]:
    """What each process prints."""
    if ground != "workers":
        return [answer_of("compiled_run", ground)]
    launched = launch("tests.equivalence.compiled_run", ["workers"], workers=2, seconds=200)
    return [worker.answer for worker in launched]


@pytest.mark.slow
@pytest.mark.parametrize("ground", GROUNDS)
def test_gradients_that_xla_computes_are_sharded_bit_for_bit(ground: str) -> None:
    for process in found(ground):
        unsharded, sharded = process["gradients_alone"]
        assert unsharded == sharded
        assert unsharded[0] == "" and sharded[2] == []


@pytest.mark.slow
@pytest.mark.parametrize("ground", GROUNDS)
@pytest.mark.parametrize("name", ["replicas", "step"])
def test_an_update_that_xla_compiles_ends_as_unsharded_and_has_its_reason(
    name: str, ground: str
) -> None:
    for process in found(ground):
        (without, _, _), (error, _, reasons) = process[name]
        assert without == error == _ERRORS.get(ground, "InvalidArgumentError")
        assert len(reasons) == 1 and reasons[0].startswith(_REASON)


@pytest.mark.slow
@pytest.mark.parametrize("ground", GROUNDS)
def test_a_slot_in_shards_that_xla_would_read_is_an_error_that_says_so(ground: str) -> None:
    for process in found(ground):
        assert "lives in shards on other devices" in process["read"]
