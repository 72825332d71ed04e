"""Impossible arguments are refused in one line."""

from __future__ import annotations

from typing import Any

import pytest

from tf_wu_shard.bench.settings import Settings
from tf_wu_shard.errors import OptionError


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"strategy": "tpu"}, "no strategy is called 'tpu'; choose one of mirrored"),
        ({"optimizer": "lambada"}, "no optimizer is called 'lambada'; choose one of sgd"),
        ({"replicas": 1}, "replicas must be at least 2, not 1"),
        ({"batch": 0}, "batch must be at least 1, not 0"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"warmup": 0}, "warmup must be at least 1"),
        ({"width": 0}, "width must be at least 1"),
        ({"depth": -1}, "depth must be at least 1, not -1"),
    ],
)
def test_a_setting_out_of_range_is_named_with_what_is_valid(
    wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        Settings(**wrong)


def test_sizes_that_were_not_given_are_left_to_the_model() -> None:
    assert Settings(depth=3).model_sizes == {"depth": 3}
