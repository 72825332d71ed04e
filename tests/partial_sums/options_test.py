"""The flag and its options: wrong values are one clear error where they are set."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

import tf_wu_shard
from tf_wu_shard import OptionError, PartialSums
from tf_wu_shard.partial_sums.options import FLAG, current_options, parse_flag


def test_values_of_the_flag() -> None:
    assert parse_flag(None) is parse_flag(False) is None
    assert parse_flag(True) == PartialSums() == PartialSums(max_staleness=2)
    assert parse_flag(PartialSums(max_staleness=5)) == PartialSums(max_staleness=5)


@pytest.mark.parametrize("value", [1, "True", {"max_staleness": 1}, PartialSums])
def test_another_value_of_the_flag_is_refused(value: Any) -> None:
    with pytest.raises(OptionError, match=f"'{FLAG}' must be True, False or a tf_wu_shard.Partial"):
        tf.config.optimizer.set_experimental_options({FLAG: value})
    assert current_options() is None


@pytest.mark.parametrize("steps", [0, -1, 1.5, True, "2", None])
def test_staleness_is_a_number_of_steps(steps: Any) -> None:
    with pytest.raises(OptionError, match="max_staleness must be an integer of at least 1, not"):
        PartialSums(max_staleness=steps)


@pytest.mark.parametrize("mode", ["first", None, 1])
def test_a_mode_is_one_of_two(mode: Any) -> None:
    with pytest.raises(OptionError, match="mode must be 'majority' or 'solo', not"):
        PartialSums(mode=mode)


@pytest.mark.parametrize("seed", [1.5, True, "2", None])
def test_a_seed_is_a_number(seed: Any) -> None:
    with pytest.raises(OptionError, match="seed must be an integer, not"):
        PartialSums(seed=seed)


def test_a_misspelt_flag_is_noticed() -> None:
    with pytest.raises(OptionError, match=f"did you mean '{FLAG}'"):
        tf.config.optimizer.set_experimental_options({"partial_gradients_sums": True})


def test_the_context_shows_it() -> None:
    tf.config.optimizer.set_experimental_options({FLAG: tf_wu_shard.PartialSums()})
    assert tf.config.optimizer.get_experimental_options()[FLAG] == PartialSums()
    assert current_options() == PartialSums()
    tf.config.optimizer.set_experimental_options({FLAG: False})
    assert current_options() is None
