"""Claims about demo/tasks.py: runs of a task see the same data, and scores mean what they say."""

import math

import numpy as np
import pytest

from tf_wu_shard.demo.runs import SCORES, TITLES
from tf_wu_shard.demo.tasks import task

# Making a task's data runs ops, and devices cannot be divided once TensorFlow has used one.
pytestmark = pytest.mark.usefixtures("logical_cpus")


@pytest.mark.parametrize("name", TITLES)
@pytest.mark.parametrize("quick", [True, False])
def test_a_task_is_the_same_each_time_and_ends_with_a_smaller_batch(name: str, quick: bool) -> None:
    first, again = task(name, quick), task(name, quick)
    inputs, targets = first.training(replicas=4)
    np.testing.assert_array_equal(inputs, again.training(replicas=4)[0])
    assert len(inputs) == len(targets) == first.batch * 4 * first.steps - 1


@pytest.mark.parametrize("name", TITLES)
def test_no_held_out_example_is_trained_on(name: str) -> None:
    chosen = task(name, quick=False)
    trained = {row.tobytes() for row in chosen.training(replicas=8)[0]}
    held_out = [row.tobytes() for row in chosen.testing()[0]]
    assert len(held_out) == chosen.held_out
    assert not trained.intersection(held_out)


def test_every_task_has_a_title_and_a_score() -> None:
    assert TITLES.keys() == SCORES.keys()


def test_the_perplexity_of_equal_logits_is_the_vocabulary() -> None:
    score = task("language_model", quick=True).score
    targets = np.zeros((2, 3), np.int32)
    assert score(np.zeros((2, 3, 7), np.float32), targets) == pytest.approx(7)
    sure = np.full((2, 3, 7), -1000.0, np.float32)
    sure[..., 0] = 1000.0
    assert score(sure, targets) == pytest.approx(1)
    assert math.isfinite(score(np.zeros((2, 3, 7)), targets))


def test_the_accuracy_is_the_share_of_hits() -> None:
    score = task("digits", quick=True).score
    logits = np.eye(10)[[1, 2, 3, 4]]
    assert score(logits, np.array([1, 2, 3, 9])) == 0.75
