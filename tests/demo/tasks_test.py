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


def test_in_other_places_all_but_the_first_replica_change_examples_in_all_but_the_last_step() -> (
    None
):
    chosen = task("digits", quick=True)
    size, replicas = chosen.batch, 4
    inputs, targets = chosen.training(replicas)
    others, other_targets = chosen.training(replicas, in_other_places=True)
    for step in range(chosen.steps):
        order = [0, 3, 2, 1] if step < chosen.steps - 1 else [0, 1, 2, 3]
        for place, origin in enumerate(order):
            new, old = ((step * replicas + number) * size for number in (place, origin))
            np.testing.assert_array_equal(others[new : new + size], inputs[old : old + size])
            np.testing.assert_array_equal(
                other_targets[new : new + size], targets[old : old + size]
            )


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
