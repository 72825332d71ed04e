"""Whatever formula an update is, compiling the exact part of it moves no bit of the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.equivalence.compiled_formulas_run import FORMULAS
from tests.equivalence.own_process import answer_of
from tests.selection import cases, selected

_QUICK = {*FORMULAS, *map(str, range(4))}
_RANDOM = tuple(map(str, range(150)))


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest) -> Callable[[str], dict[str, Any]]:
    """What came of a formula; one process takes all that are asked about."""
    answer = answer_of("compiled_formulas_run", *selected(request, "name"))
    return lambda name: dict(answer[name])


@pytest.mark.parametrize("name", cases((*FORMULAS, *_RANDOM), _QUICK))
def test_no_bit_differs(name: str, found: Callable[[str], dict[str, Any]]) -> None:
    run = found(name)
    assert (run["sharded"], run["apart"]) == (1, 0)
    assert run["moved"] or name not in FORMULAS


@pytest.mark.parametrize("name", ["product_with_the_slot", "integers", "belief", "sum_of_sizes"])
def test_what_is_left_open_is_not_all_of_it(
    name: str, found: Callable[[str], dict[str, Any]]
) -> None:
    (reason,) = found(name)["open"]
    assert reason == ""
