"""Claims about models/transformer_lm.py: causal, tied by one table, no dead biases."""

import numpy as np
import pytest
import tensorflow as tf

from tf_wu_shard import models
from tf_wu_shard.errors import OptionError

# These run ops, and devices cannot be divided once TensorFlow has used one.
pytestmark = pytest.mark.usefixtures("logical_cpus")


def test_no_token_sees_a_later_one() -> None:
    model = models.build("transformer_lm")
    ids, _ = models.data("transformer_lm", examples=1)
    changed = ids.copy()
    changed[0, 9] = (changed[0, 9] + 1) % 97
    before, after = np.asarray(model(ids)), np.asarray(model(changed))
    np.testing.assert_array_equal(before[0, :9], after[0, :9])
    assert not np.array_equal(before[0, 9], after[0, 9])
    assert not np.array_equal(before[0, -1], after[0, -1])


def test_tying_saves_one_table() -> None:
    tied = models.build("transformer_lm", vocabulary=50, width=8, tied=True)
    untied = models.build("transformer_lm", vocabulary=50, width=8, tied=False)
    assert untied.count_params() - tied.count_params() == 50 * 8


def test_the_tied_table_has_one_dense_gradient_from_both_its_uses() -> None:
    model = models.build("transformer_lm")
    ids, targets = models.data("transformer_lm", examples=2)
    with tf.GradientTape() as tape:
        loss = models.loss("transformer_lm")(targets, model(ids))
    [table] = [variable for variable in model.trainable_variables if "table" in variable.path]
    gradient = tape.gradient(loss, table.value)
    assert isinstance(gradient, tf.Tensor)
    assert gradient.shape == (97, 32)
    # The head pushes every row; the lookup alone would leave rows of unused tokens at zero.
    assert np.count_nonzero(np.abs(gradient).sum(axis=1)) == 97


def test_attention_has_no_bias() -> None:
    paths = [variable.path for variable in models.build("transformer_lm").trainable_variables]
    attention = [path for path in paths if "_attention/" in path]
    assert len(attention) == 8
    assert all(path.endswith("kernel") for path in attention)


def test_dropout_acts_in_training_alone() -> None:
    model = models.build("transformer_lm", dropout=0.5)
    ids, _ = models.data("transformer_lm", examples=1)
    still = np.asarray(model(ids))
    np.testing.assert_array_equal(still, np.asarray(model(ids)))
    assert not np.array_equal(still, np.asarray(model(ids, training=True)))


def test_a_width_that_heads_do_not_divide_is_refused() -> None:
    with pytest.raises(OptionError, match="width 30 must be a multiple of heads 4"):
        models.build("transformer_lm", width=30, heads=4)


def test_the_made_up_language_can_be_guessed_four_times_of_five() -> None:
    ids, following = models.data("transformer_lm", examples=400)
    guesses = np.zeros((97, 97), int)
    np.add.at(guesses, (ids.ravel(), following.ravel()), 1)
    hits = guesses.max(axis=1).sum() / ids.size
    # 6,400 draws at 0.8: five standard deviations are 0.025.
    assert abs(hits - 0.8) < 0.03
    np.testing.assert_array_equal(ids[:, 1:], following[:, :-1])
