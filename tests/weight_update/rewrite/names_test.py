"""Emitted ops have names that a stranger can read, of characters that TensorFlow allows."""

from __future__ import annotations

import re

import pytest

from tf_wu_shard.weight_update.rewrite.names import in_place_of, scope_of


@pytest.mark.parametrize(
    ("variable", "scope"),
    [
        ("dense/kernel", "wu_shard/dense/kernel/update"),
        ("my layer:0", "wu_shard/my_layer_0/update"),
        ("größe", "wu_shard/gr__e/update"),
        ("a.b-c_d", "wu_shard/a.b-c_d/update"),
    ],
)
def test_a_scope_names_the_variable_and_what_is_done_to_it(variable: str, scope: str) -> None:
    assert scope_of(variable, "update") == scope
    # What TensorFlow asks of an op's name.
    assert re.fullmatch(r"[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*", scope)


def test_what_stands_in_for_an_op_begins_with_its_name() -> None:
    assert in_place_of("model/add", "wu_shard/w/update") == "model/add/wu_shard/w/update"
