"""What TensorFlow calls a function tells what Python called it."""

from __future__ import annotations

import pytest

from tf_wu_shard.inspection.reading.function_names import short_name


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("__inference_train_256", "train"),
        ("__inference_signature_wrapper_train_step_3", "train_step"),
        ("train", "train"),
        ("train_step", "train_step"),
        ("", ""),
    ],
)
def test_a_short_name(name: str, short: str) -> None:
    assert short_name(name) == short
