"""What cannot be compiled is refused before minutes pass, with what may be chosen instead."""

from __future__ import annotations

from typing import Any

import pytest

from tf_wu_shard.errors import OptionError
from tf_wu_shard.tpu_compiler.settings import DEFAULT_BATCH, Settings


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"model": "mlp", "topology": "v5e:3x3"}, "v5e:3x3"),
        ({}, "name a model or a script, and not both"),
        ({"model": "mlp", "script": "train.py"}, "name a model or a script, and not both"),
        ({"model": "mlp", "optimizer": "nosuch"}, "no optimizer is called 'nosuch'; choose one of"),
        ({"model": "mlp", "batch": 0}, "batch must be at least 1, not 0"),
        ({"model": "mlp", "gather_dtype": "int3"}, "gather_dtype"),
    ],
)
def test_what_names_nothing_known_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        Settings(**{"topology": "v5e:4x4", **given})


def test_a_model_has_a_batch_and_a_scripts_trace_may_say_its_own() -> None:
    assert Settings(topology="v5e:4x4", model="mlp").batch == DEFAULT_BATCH
    assert Settings(topology="v5e:4x4", script="train.py").batch is None
    assert Settings(topology="v5e:4x4", script="train.py", batch=8).batch == 8


def test_the_flag_is_what_was_asked_for_and_nothing_else() -> None:
    plain = Settings(topology="v5e:4x4", model="mlp").sharding_options
    narrow = Settings(topology="v5e:4x4", model="mlp", gather_dtype="bfloat16").sharding_options
    assert plain.gather_dtype is None and narrow.gather_dtype == "bfloat16"
    assert Settings(topology="v5e:4x4", model="mlp").slice.num_devices == 16
