"""A peer's process: the work it is given, and its end of the conversation with the benchmark.

It speaks as `tf_wu_shard.bench.conversation` does: `build` (problem, a file name), then any number
of `step` and `no_update`, and of `update` where the peer has one, each answered with its seconds
and its loss. A step is over when its results are there.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np


@dataclasses.dataclass(frozen=True)
class Problem:
    """The same work for everyone: a stack of dense layers, mean squared error, Adam.

    Attributes:
        replicas: Each gets its own rows of a global batch.
        learning_rate: Of Adam.
        beta_1: The same.
        beta_2: The same.
        epsilon: Added to the root of the second moment.
        kernels: First weights, each [inputs, outputs] float32; relu follows all but the last.
        biases: The same, each [outputs].
        inputs: Global batches, [batches, replicas * batch, width] float32.
        targets: The same.
    """

    replicas: int
    learning_rate: float
    beta_1: float
    beta_2: float
    epsilon: float
    kernels: list[np.ndarray]
    biases: list[np.ndarray]
    inputs: np.ndarray
    targets: np.ndarray


class Peer(Protocol):
    """What a peer offers; each call gets the number of the global batch and returns the loss."""

    def step(self, batch: int) -> float:
        """Gradients, their reduction, the sharded update."""

    def no_update(self, batch: int) -> float:
        """Each replica's gradients alone, all of them held until all are there."""


def load(file: str) -> Problem:
    """Reads a problem that `tools/bench_peers.py` wrote."""
    with np.load(file) as arrays:
        numbers = json.loads(str(arrays["numbers"]))
        layers = numbers.pop("layers")
        return Problem(
            kernels=[arrays[f"kernel_{layer}"] for layer in range(layers)],
            biases=[arrays[f"bias_{layer}"] for layer in range(layers)],
            inputs=arrays["inputs"],
            targets=arrays["targets"],
            **numbers,
        )


def serve(build: Callable[[str], Peer]) -> None:
    """Answers commands until standard input ends.

    Args:
        build: Makes the peer from the name of the problem's file, with batches to be fed in turn.
    """
    commands = sys.stdin
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # What a library prints must not get between the answers.
    os.dup2(2, 1)
    peer: Peer | None = None
    taken = {"step": 0, "no_update": 0, "update": 0}
    for line in commands:
        asked: dict[str, Any] = json.loads(line)
        name = asked["command"]
        try:
            value = None
            if name == "build":
                peer = build(asked["problem"])
            else:
                assert peer is not None, "build comes first"
                start = time.perf_counter()
                loss = getattr(peer, name)(taken[name])
                value = {"seconds": time.perf_counter() - start, "loss": loss}
                taken[name] += 1
            answer: dict[str, Any] = {"value": value}
        # Whatever it was, the benchmark is to hear of it.
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
