"""PyTorch: one process a replica over gloo, as `torchrun` would start them, and one to lead them.

Each replica has one thread, torchrun's own choice where there are more processes than cores.
Between steps all replicas block on a pipe. A step's time is the leader's, from the command to the
last replica's answer.
"""

from __future__ import annotations

import multiprocessing
import pathlib
import statistics
import tempfile
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn

from tools.peers.answering import Problem, load, serve


class Training(Protocol):
    """One replica's model in the wrapping of a peer."""

    def step(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Gradients, their reduction, the sharded update; returns the replica's loss."""

    def update(self) -> None:
        """The replica's part of the update alone, with the gradients that the last step left."""


Wrap = Callable[[nn.Sequential, Problem], Training]


class Replicas:
    """Starts the replicas and leads them."""

    def __init__(self, file: str, wrap: Wrap) -> None:
        """Returns when all replicas have their model.

        Args:
            file: Of the problem.
            wrap: Makes the peer's training of a plain model; a function of a module, as the
                replicas' processes import it.
        """
        replicas = load(file).replicas
        context = multiprocessing.get_context("spawn")
        meeting = pathlib.Path(tempfile.mkdtemp(), "meeting").as_uri()
        self._pipes: list[Connection] = []
        for replica in range(replicas):
            ours, theirs = context.Pipe()
            # Daemons end with this process, whichever way it ends on its own.
            context.Process(
                target=_replica, args=(replica, file, wrap, meeting, theirs), daemon=True
            ).start()
            theirs.close()
            self._pipes.append(ours)
        self._answers()

    def step(self, batch: int) -> float:
        """One step on every replica."""
        return self._command("step", batch)

    def no_update(self, batch: int) -> float:
        """Every replica's gradients of a plain model, with nothing distributed around it."""
        return self._command("no_update", batch)

    def update(self, batch: int) -> float:
        """Every replica's part of the update, with nothing exchanged; there is no loss."""
        return self._command("update", batch)

    def _command(self, name: str, batch: int) -> float:
        for pipe in self._pipes:
            pipe.send((name, batch))
        return statistics.fmean(self._answers())

    def _answers(self) -> list[float]:
        return [pipe.recv() for pipe in self._pipes]


def _replica(replica: int, file: str, wrap: Wrap, meeting: str, pipe: Connection) -> None:
    """A replica's whole life."""
    torch.set_num_threads(1)
    problem = load(file)
    dist.init_process_group("gloo", init_method=meeting, rank=replica, world_size=problem.replicas)
    plain = plain_model(problem)
    training = wrap(plain_model(problem), problem)
    batches = _own_rows(problem, replica)
    pipe.send(0.0)
    while True:
        try:
            name, batch = pipe.recv()
        except EOFError:
            return
        if name == "update":
            training.update()
            pipe.send(0.0)
            continue
        inputs, targets = batches[batch % len(batches)]
        if name == "step":
            loss = training.step(inputs, targets)
        else:
            plain.zero_grad()
            loss = nn.functional.mse_loss(plain(inputs), targets)
            loss.backward()
        pipe.send(loss.item())


def plain_model(problem: Problem) -> nn.Sequential:
    """Returns the stack of layers with the problem's first weights."""
    layers: list[nn.Module] = []
    for kernel, bias in zip(problem.kernels, problem.biases, strict=True):
        linear = nn.Linear(*kernel.shape)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(kernel).T)
            linear.bias.copy_(torch.from_numpy(bias))
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def adam_arguments(problem: Problem) -> dict[str, object]:
    """The arguments of `torch.optim.Adam`; fused is its fastest form on CPU."""
    return {
        "lr": problem.learning_rate,
        "betas": (problem.beta_1, problem.beta_2),
        "eps": problem.epsilon,
        "fused": True,
    }


def _own_rows(problem: Problem, replica: int) -> list[tuple[Tensor, Tensor]]:
    rows = problem.inputs.shape[1] // problem.replicas
    own = slice(replica * rows, (replica + 1) * rows)
    return [
        (torch.from_numpy(inputs[own]), torch.from_numpy(targets[own]))
        for inputs, targets in zip(problem.inputs, problem.targets, strict=True)
    ]


def serve_replicas(wrap: Wrap) -> None:
    """Serves the benchmark with replicas of this kind."""
    serve(lambda file: Replicas(file, wrap))
