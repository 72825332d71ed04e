"""The flag is off after every test here, and no test sees another's reports."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import tensorflow as tf

import tf_wu_shard


@pytest.fixture(autouse=True)
def _flag_off() -> Iterator[None]:
    yield
    tf.config.optimizer.set_experimental_options({"weight_update_sharding": False})
    tf_wu_shard.clear_reports()
