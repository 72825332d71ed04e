"""The comparison with peers: the work they are handed, and the check that they did it."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any, cast

import numpy as np
import pytest

from tf_wu_shard.bench import local_cluster, training
from tf_wu_shard.bench.conversation import Worker
from tf_wu_shard.bench.settings import Settings
from tools import bench_peers
from tools.bench_peers import OURS, Contestant, DifferentWorkError
from tools.peers.answering import load


class Built:
    """Stands for a built process of ours; has two layers."""

    def ask(self, command: str, **arguments: Any) -> None:
        assert command == "weights"
        layers = [np.full((4, 4), 1.0), np.full(4, 2.0), np.full((4, 4), 3.0), np.full(4, 4.0)]
        np.savez(arguments["file"], *layers)


@pytest.mark.usefixtures("logical_cpus")
def test_peers_get_our_first_weights_and_our_batches_in_order(tmp_path: pathlib.Path) -> None:
    settings = Settings(replicas=2, batch=3, width=4, depth=2)
    file = bench_peers._write_problem(settings, cast(Worker, Built()), str(tmp_path))
    problem = load(file)
    assert [kernel[0, 0] for kernel in problem.kernels] == [1.0, 3.0]
    assert [bias[0] for bias in problem.biases] == [2.0, 4.0]
    inputs, targets = training.examples(settings)
    assert problem.inputs.shape == (training.BATCHES, 2 * 3, 4)
    np.testing.assert_array_equal(problem.inputs[1], inputs[6:12])
    np.testing.assert_array_equal(problem.targets[1], targets[6:12])
    assert problem.learning_rate == pytest.approx(1e-3, rel=1e-6)  # Keras keeps it as float32
    assert problem.beta_1 == 0.9
    assert problem.epsilon == bench_peers.EPSILON


def _contestant(losses: list[float], step: list[float], no_update: list[float]) -> Contestant:
    seconds = {"step": step, "no_update": no_update, "update": []}
    return Contestant({}, seconds=seconds, losses=losses)


def test_a_peer_whose_losses_are_not_ours_did_other_work() -> None:
    # Keras says the mean so far, a peer the loss of the step.
    contestants = {
        OURS: dataclasses.replace(_contestant([2.0, 1.5, 1.2], [], []), losses_so_far=True),
        "jax_zero1": _contestant([2.0, 1.0, 0.6], [], []),
    }
    bench_peers._check_same_work(contestants)
    contestants["torch_zero"] = _contestant([2.0, 1.0, 0.7], [], [])
    with pytest.raises(DifferentWorkError, match=r"torch_zero trained to a mean loss of 1\.23333"):
        bench_peers._check_same_work(contestants)


def test_of_processes_the_loss_is_that_of_all_and_the_time_the_slowest_ones() -> None:
    class Cluster:
        def ask(self, command: str) -> list[dict[str, float]]:
            return [{"seconds": 1.0, "loss": 0.5}, {"seconds": 3.0, "loss": 0.25}]

    workers = bench_peers._Workers(cast(local_cluster.LocalCluster, Cluster()))
    contestant = Contestant({"step": workers})
    for _ in range(2):
        bench_peers._take_steps(contestant, keep=True)
    assert contestant.seconds["step"] == [3.0, 3.0]
    assert bench_peers._mean_loss(contestant) == 0.75


def test_an_update_costs_the_step_minus_the_step_without_it() -> None:
    figures = _contestant([], [5.0, 3.0, 4.0], [2.0, 1.5, 1.0]).figures()
    assert (figures["update_s"], figures["least_update_s"]) == (4.0 - 1.5, 3.0 - 1.0)
    found = {
        OURS: figures,
        "jax_zero1": {"update_s": 10.0, "least_update_s": 1.0},
        "torch_zero": {"update_s": 5.0, "least_update_s": 4.0},
    }
    peers = ["jax_zero1", "torch_zero"]
    assert bench_peers._against_best(found, peers, "update_s", "") == {
        "best_peer": "torch_zero",
        "ours_over_best": 0.5,
    }
    least = bench_peers._against_best(found, peers, "least_update_s", "least_")
    assert least == {"least_best_peer": "jax_zero1", "least_ours_over_best": 2.0}
