"""The module of an all-gather is read back as it was written, and no other is."""

from __future__ import annotations

import pytest

from tf_wu_shard.grounds.tpu import all_gather_module

_FLOAT, _COMPLEX = 1, 8

FOREIGN = [
    "",
    "module {}",
    "module @jax_f { func.func @main() { return } }",
    # The name alone does not make it one.
    "module @wu_shard_all_gather { func.func @main() { return } }",
    "module @wu_shard_all_gather_of_another { replica_groups = dense<[[0]]> }",
]


@pytest.mark.parametrize("groups", [((0,),), ((0, 1, 2, 3),), ((2, 0), (1, 3)), ((5, 4, 11),)])
def test_the_groups_are_read_back_in_their_order(groups: tuple[tuple[int, ...], ...]) -> None:
    found = all_gather_module.read(all_gather_module.write((8, 128), _FLOAT, groups))
    assert found is not None
    assert found.groups == groups


def test_the_first_dimension_grows_by_the_size_of_a_group() -> None:
    module = all_gather_module.write((8, 128), _FLOAT, ((0, 2, 4), (1, 3, 5)))
    assert "(%arg0: tensor<8x128xf32>) -> tensor<24x128xf32>" in module
    assert "tensor<2x3xi64>" in module
    assert "all_gather_dim = 0 : i64" in module


@pytest.mark.parametrize("module", FOREIGN)
def test_modules_of_others_are_not_read(module: str) -> None:
    assert all_gather_module.read(module) is None


def test_an_element_type_without_a_name_is_none() -> None:
    assert all_gather_module.element_type(_FLOAT) == "f32"
    assert all_gather_module.element_type(_COMPLEX) is None
