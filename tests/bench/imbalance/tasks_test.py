"""What is trained under an imbalance: batches of all examples but some, their loss and score."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
import tensorflow as tf

from tf_wu_shard.bench.imbalance.tasks import Batch, Task, task

# These run ops, and devices cannot be divided once TensorFlow has used one.
pytestmark = pytest.mark.usefixtures("logical_cpus")

NAMES = "digits", "language_model", "text"


@functools.cache
def made(name: str, seed: int = 0) -> Task:
    return task(name, seed)


def rows_of(examples: Batch) -> list[bytes]:
    """Each example's input and target."""
    pairs = zip(*examples, strict=True)
    return [one.tobytes() + np.asarray(target).tobytes() for one, target in pairs]


def test_batches_go_through_all_examples_and_begin_again() -> None:
    batch, count = made("digits").batch, 1500
    all_of_them = rows_of(batch(0, count))
    assert len({*all_of_them}) == count
    assert rows_of(batch(1, count)) == all_of_them
    assert rows_of(batch(1, 1000)) == all_of_them[1000:] + all_of_them[:500]


# Of the text some paragraphs are the same words.
@pytest.mark.parametrize("name", ["digits", "language_model"])
def test_no_batch_has_what_is_held_out(name: str) -> None:
    own = made(name)
    held_out = rows_of(own.held_out)
    assert len(held_out) >= 64
    assert {*held_out}.isdisjoint(rows_of(own.batch(0, 10_000)))


def test_a_text_begins_again() -> None:
    inputs, targets = made("text").batch(10_000, 4)
    assert len(inputs) == len(targets) == 4


@pytest.mark.parametrize("name", NAMES)
def test_a_seed_orders_the_batches_and_holds_out_the_same(name: str) -> None:
    one, again, other = (made(name, 0), task(name, 0), made(name, 1))
    batches = [[part.tolist() for part in each.batch(3, 8)] for each in (one, again, other)]
    assert batches[0] == batches[1] != batches[2]
    held_out = [[part.tolist() for part in each.held_out] for each in (one, other)]
    assert held_out[0] == held_out[1]


def test_a_batch_of_text_is_as_long_as_its_longest() -> None:
    lengths = set()
    for number in range(5):
        inputs, targets = made("text").batch(number, 4)
        assert inputs.shape == targets.shape and inputs.shape[1] <= 160
        own = (targets != -1).sum(axis=1)
        assert own.max() == inputs.shape[1] and own.min() >= 4
        lengths |= {*own.tolist()}
        for row, target, length in zip(inputs, targets, own, strict=True):
            # Each token is to be told from those before it; padding is at the end.
            assert (row[1:length] == target[: length - 1]).all()
            assert (row[length + 1 :] == 0).all() and (target[length:] == -1).all()
    assert len(lengths) > 5


def test_digits_by_fit_are_the_same_digits() -> None:
    by_fit = made("digits_by_fit")
    assert by_fit.by_fit and not made("digits").by_fit
    for one, other in zip(by_fit.batch(1, 4), made("digits").batch(1, 4), strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_accuracy_is_the_percentage_of_labels_that_are_told() -> None:
    logits = np.array([[0.0, 2.0], [3.0, 1.0], [0.0, 1.0], [1.0, 0.5]])
    assert made("digits").score(np.array([1, 0, 0, 0]), logits) == 75.0
    assert made("digits").higher_is_better


@pytest.mark.parametrize("name", ["text", "language_model"])
def test_a_perplexity_is_of_tokens_and_not_of_padding(name: str) -> None:
    told = np.log([[0.5, 0.25, 0.25], [0.125, 0.125, 0.75], [0.1, 0.1, 0.8]])
    targets = np.array([[0, 1, -1]])
    # exp of the mean of log 2 and log 8; the exponent and the logarithm round.
    assert math.isclose(made(name).score(targets, told[None]), 4.0, rel_tol=1e-12)
    assert not made(name).higher_is_better


def test_logits_beyond_all_numbers_have_a_perplexity() -> None:
    score = made("text").score
    shifted = np.array([[[1e4, 1e4]]], np.float32)
    # Half of the weight is on either: 2, but for rounding.
    assert math.isclose(score(np.array([[0]]), shifted), 2.0, rel_tol=1e-12)
    astray = np.array([[[1e4, 0.0]]], np.float32)
    with np.errstate(over="ignore"):
        assert score(np.array([[1]]), astray) == math.inf


def test_the_loss_of_text_is_the_mean_over_tokens_alone() -> None:
    told = np.log(np.array([[[0.5, 0.5], [0.25, 0.75], [0.9, 0.1]]], np.float32))
    loss = made("text").loss(tf.constant([[0, 0, -1]]), tf.constant(told))
    # The mean of log 2 and log 4 in float32, which has some 7 digits.
    assert math.isclose(float(loss), 1.5 * math.log(2), rel_tol=1e-6)


@pytest.mark.parametrize("name", ["digits", "text"])
def test_a_model_yields_logits_that_the_loss_and_the_score_take(name: str) -> None:
    own = made(name)
    inputs, targets = (part[:2] for part in own.held_out)
    logits = own.model()(inputs)
    assert float(own.loss(targets, logits)) > 0
    assert own.score(targets, logits.numpy()) >= 0
