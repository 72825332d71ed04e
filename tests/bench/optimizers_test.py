"""The benchmark's names for optimizers are Keras's rules, with the slots they say."""

from __future__ import annotations

import pytest

from tf_wu_shard.bench.optimizers import NAMES, SLOTS, make

SHAPE = (3, 5)


# Whoever touches TensorFlow first in this process must have made its devices.
@pytest.mark.usefixtures("logical_cpus")
@pytest.mark.parametrize("name", SLOTS)
def test_the_table_knows_how_many_slots_keras_makes(name: str) -> None:
    import keras

    optimizer = make(name)
    optimizer.build([keras.Variable(keras.ops.ones(SHAPE))])
    slots = [variable for variable in optimizer.variables if tuple(variable.shape) == SHAPE]
    assert len(slots) == SLOTS[name]


@pytest.mark.usefixtures("logical_cpus")
@pytest.mark.parametrize("name", sorted(set(NAMES) - set(SLOTS)))
def test_other_names_make_the_optimizers_of_these_names(name: str) -> None:
    assert type(make(name)).__name__.lower() == name.replace("_", "")


@pytest.mark.usefixtures("logical_cpus")
def test_variants_differ_from_the_plain_rule_by_their_argument() -> None:
    assert make("amsgrad").amsgrad and not make("adam").amsgrad
    assert make("nesterov").nesterov and not make("momentum").nesterov
    assert make("centered_rmsprop").centered and not make("rmsprop").centered


@pytest.mark.usefixtures("logical_cpus")
def test_epsilon_is_keras_own_unless_given() -> None:
    assert make("adam").epsilon == 1e-7
    assert make("amsgrad", epsilon=1e-3).epsilon == 1e-3
    assert make("amsgrad", epsilon=1e-3).amsgrad
