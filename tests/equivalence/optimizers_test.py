"""The matrix names real optimizers, and what it expects of their slots is what they keep."""

from __future__ import annotations

import keras
import pytest

from tests.equivalence import configurations, optimizers


def test_every_name_of_the_matrix_is_a_recipe_and_every_recipe_is_in_the_matrix() -> None:
    assert set(configurations.KERAS) == set(optimizers.KERAS)
    assert set(configurations.FUSED) == set(optimizers.FUSED)


@pytest.mark.parametrize("name", optimizers.KERAS)
def test_a_recipe_says_how_many_slots_a_weight_has(name: str) -> None:
    weight = keras.Variable([[1.0, 2.0, 3.0]])
    recipe = optimizers.KERAS[name]
    optimizer = recipe.make()
    optimizer.build([weight])
    assert sum(v.shape == weight.shape for v in optimizer.variables) == recipe.slots
