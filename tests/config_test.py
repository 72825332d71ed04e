"""The options are checked field by field, and the flag takes exactly four kinds of value."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from tf_wu_shard.config import ShardingOptions, parse_flag
from tf_wu_shard.errors import OptionError


def test_true_means_the_defaults() -> None:
    assert parse_flag(True) == ShardingOptions()


@pytest.mark.parametrize("off", [False, None])
def test_false_and_none_mean_off(off: object) -> None:
    assert parse_flag(off) is None


def test_options_are_taken_as_they_are() -> None:
    options = ShardingOptions(
        min_elements=1, on_refusal="raise", min_sharded=0.5, deterministic=True
    )
    assert parse_flag(options) is options


@pytest.mark.parametrize(
    "wrong", [1, 0, "True", "on", {"min_elements": 1}, np.True_, ShardingOptions, 1.0, [], ()]
)
def test_any_other_value_raises_and_names_the_valid_ones(wrong: object) -> None:
    with pytest.raises(OptionError) as raised:
        parse_flag(wrong)
    for part in ("weight_update_sharding", "True", "False", "ShardingOptions", repr(wrong)):
        assert part in str(raised.value)


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("min_elements", 0),
        ("min_elements", -1),
        ("min_elements", True),
        ("min_elements", 1.5),
        ("min_elements", "1024"),
        ("min_step_elements", 0),
        ("bucket_bytes", 0),
        ("bucket_bytes", False),
        ("bucket_bytes", 4e6),
        ("min_sharded", 50),
        ("min_sharded", -0.1),
        ("min_sharded", True),
        ("min_sharded", "0.5"),
        ("on_refusal", "ignore"),
        ("on_refusal", None),
        ("on_refusal", True),
        ("on_refusal", ["warn"]),
        ("deterministic", 1),
        ("deterministic", None),
    ],
)
def test_a_wrong_field_raises_and_is_named(field: str, wrong: object) -> None:
    fields: dict[str, Any] = {field: wrong}
    with pytest.raises(OptionError) as raised:
        ShardingOptions(**fields)
    assert f"ShardingOptions.{field}" in str(raised.value)
    assert repr(wrong) in str(raised.value)


def test_one_element_and_one_byte_are_allowed() -> None:
    options = ShardingOptions(min_elements=1, bucket_bytes=1)
    assert (options.min_elements, options.bucket_bytes) == (1, 1)


def test_none_leaves_both_sizes_to_the_ground() -> None:
    options = ShardingOptions(min_elements=None, bucket_bytes=None)
    assert options == ShardingOptions()


def test_option_errors_can_be_caught_as_value_errors() -> None:
    with pytest.raises(ValueError, match="bucket_bytes"):
        ShardingOptions(bucket_bytes=-1)


def test_options_are_frozen_and_a_changed_copy_is_checked_again() -> None:
    options = ShardingOptions()
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.min_elements = 1  # type: ignore[misc]
    with pytest.raises(OptionError):
        dataclasses.replace(options, min_elements=0)


@pytest.mark.parametrize("wrong", [True, 0, "Exact", "yes"])
def test_an_update_is_compiled_exactly_fast_or_not(wrong: Any) -> None:
    with pytest.raises(OptionError, match="compile_update must be 'exact' or 'fast' or False"):
        ShardingOptions(compile_update=wrong)
    assert ShardingOptions().compile_update is None
    assert ShardingOptions(compile_update=False).compile_update is False
    assert ShardingOptions(compile_update="fast").compile_update == "fast"
