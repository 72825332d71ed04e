"""How the pass grows, on a scale that a test can bear."""

from __future__ import annotations

import json

import pytest

from tf_wu_shard.bench.scaling import Scaling, Traced, measure_scaling
from tf_wu_shard.errors import OptionError


def test_the_ratio_is_of_pass_times() -> None:
    scaling = Scaling(2, "adam", Traced(200, 10.0, 100.0), Traced(2000, 95.0, 1000.0), 0.25)
    assert json.loads(scaling.to_json())["ratio"] == scaling.ratio == 9.5
    assert "10 times the variables cost 9.5 times the pass" in str(scaling)
    assert "250 microseconds" in str(scaling)


@pytest.mark.slow
def test_steps_of_few_and_many_variables_are_traced_through_the_pass() -> None:
    said: list[str] = []
    scaling = measure_scaling("sgd", 2, said.append, counts=(2, 4))
    assert (scaling.few.variables, scaling.many.variables) == (2, 4)
    assert 0 < scaling.few.pass_ms < scaling.few.trace_ms
    assert scaling.no_reduction_ms > 0
    assert len(said) == 3


def test_wrong_arguments_start_no_process() -> None:
    with pytest.raises(OptionError, match="replicas must be at least 2"):
        measure_scaling("adam", 1, lambda line: None)
