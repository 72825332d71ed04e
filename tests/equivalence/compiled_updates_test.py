"""Updates that XLA compiles: exactly, no bit differs; fast, no more than another order of sums.

Exact ones are held against the unmodified run at 2 replicas, and above against the one that adds
the replicas' gradients in their order; see `matrix`.
"""

from __future__ import annotations

import pytest

from tests.equivalence import matrix
from tests.equivalence.configurations import FUSED, KERAS, LOOPS, Configuration
from tests.equivalence.matrix import Runs
from tests.selection import selected

# Bodies with products in a row, quotients of roots, powers and tests of numbers.
_QUICK = {"adamw", "ftrl", "nadam"}

_TWO = (
    *(Configuration(optimizer, "fit", "dense", 2, 1) for optimizer in KERAS),
    *(Configuration(optimizer, "replica_function", "dense", 2, 1) for optimizer in FUSED),
    *(Configuration(optimizer, loop, "conv", 2, 1) for optimizer in KERAS for loop in LOOPS[1:]),
)
_MORE = tuple(
    Configuration(optimizer, "fit", "dense_embedding", replicas, 1)
    for optimizer in KERAS
    for replicas in (4, 8)
)
_FAST = tuple(Configuration(optimizer, "fit", "dense", 4, 1) for optimizer in KERAS)


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[int, Runs]:
    folder = tmp_path_factory.mktemp("compiled_updates")
    return matrix.by_replicas(selected(request, "configuration"), folder)


@pytest.mark.parametrize(
    "configuration",
    matrix.named_cases(
        (*_TWO, *_MORE), {Configuration(name, "fit", "dense", 2, 1) for name in _QUICK}
    ),
)
def test_an_exact_run_agrees_bit_for_bit(
    configuration: Configuration, runs: dict[int, Runs]
) -> None:
    own = runs[configuration.replicas]
    mode = "baseline" if configuration.replicas == 2 else "in_order"
    unmodified = own.result(mode, configuration)
    compiled = own.result("compiled", configuration)
    matrix.check_everything_moved(unmodified)
    matrix.check_sharded(configuration, compiled)
    assert compiled.facts["reports"][-1]["compile_update"] == "exact"
    assert matrix.differences(unmodified.tensors, compiled.tensors) == {}


@pytest.mark.parametrize("configuration", matrix.named_cases(_FAST, ()))
def test_a_fast_run_moves_no_further_than_the_baseline_itself(
    configuration: Configuration, runs: dict[int, Runs]
) -> None:
    # As in comparison_test.py: XLA rounds a product and a sum once, and powers and roots otherwise.
    own = runs[configuration.replicas]
    baseline = own.result("baseline", configuration)
    reordered = own.result("reordered", configuration).tensors
    fast = own.result("fast", configuration)
    matrix.check_everything_moved(baseline)
    matrix.check_sharded(configuration, fast)
    assert fast.facts["reports"][-1]["compile_update"] == "fast"
    for name, tensor in baseline.tensors.items():
        allowed = max(1e-6, 4 * matrix.relative_difference(tensor, reordered[name]))
        assert matrix.relative_difference(tensor, fast.tensors[name]) <= allowed, name
