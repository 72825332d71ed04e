"""The cost of a sharded update here and elsewhere: the same work in JAX and PyTorch, in one run.

    python tools/bench_peers.py --replicas 8 --width 2048 --depth 6 --batch 4 --steps 10
    python tools/bench_peers.py --strategy workers --replicas 4

With `--strategy workers` each replica is a process here, too, as PyTorch's are, and what travels
over the loopback interface and the update without its exchange are measured besides.

Run it with the Python that has tf_wu_shard. The peers live in build/peers, an environment that is
made when it is missing. All start from the same weights and see the same batches; their mean losses
must agree, or it was not the same work. Steps are taken in turn, one system at a time; a peer's
update costs its step minus its own step without an update, of the medians.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from tf_wu_shard.bench import local_cluster, loopback, measure, optimizers, training
from tf_wu_shard.bench.conversation import Worker
from tf_wu_shard.bench.settings import STRATEGIES, Settings
from tf_wu_shard.errors import OptionError, WuShardError

ROOT = pathlib.Path(__file__).resolve().parents[1]
REQUIREMENTS = ROOT / "tools" / "requirements-peers.txt"
PEERS = {
    "jax_zero1": "JAX, ZeRO-1 by sharding annotations",
    "torch_zero": "PyTorch, ZeroRedundancyOptimizer",
    "torch_fsdp2": "PyTorch, FSDP2",
}
OURS = "tf_wu_shard"
COMMANDS = ("step", "no_update")

# Who has a process for each replica.
IN_PROCESSES = ("torch_zero", "torch_fsdp2")

# Keras adds epsilon to the root before Adam's bias correction and the peers after it, which at its
# usual size (1e-7) moves this model's loss by 1e-3 in ten steps. Next to nothing, it moves nothing.
EPSILON = 1e-14

# Rounding stays below this over ten steps; another batch, loss or learning rate does not.
LOSS_TOLERANCE = 1e-4


class DifferentWorkError(WuShardError, RuntimeError):
    """A peer's losses are not ours, so its times mean nothing."""


@dataclasses.dataclass
class Contestant:
    """One system: who takes its steps, and what was measured of it.

    Attributes:
        workers: For each command whom to ask.
        losses_so_far: Whether its losses are means of all steps so far, as Keras's own are.
        seconds: For each command what it took.
        losses: Of all steps.
        moved: Bytes over the loopback interface, of each step.
    """

    workers: dict[str, Worker | _Workers]
    losses_so_far: bool = False
    seconds: dict[str, list[float]] = dataclasses.field(
        default_factory=lambda: {command: [] for command in (*COMMANDS, "update")}
    )
    losses: list[float] = dataclasses.field(default_factory=list)
    moved: list[int] = dataclasses.field(default_factory=list)

    def figures(self) -> dict[str, float]:
        """Median seconds of a step with and without its update, and what the update costs.

        Other programs on the machine hit a system of many threads or processes harder, so the cost
        is given of the least times too, which they move least. Of processes also the bytes that
        travel in a step, and the update without its exchange.
        """
        step, no_update = (statistics.median(self.seconds[command]) for command in COMMANDS)
        least, least_no_update = (min(self.seconds[command]) for command in COMMANDS)
        found = {
            "step_s": step,
            "no_update_s": no_update,
            "update_s": step - no_update,
            "least_update_s": least - least_no_update,
        }
        if self.seconds["update"]:
            found["update_alone_s"] = statistics.median(self.seconds["update"])
            found["loopback_bytes"] = statistics.median(self.moved)
        return found


class _Workers:
    """Our worker processes, asked as one."""

    def __init__(self, cluster: local_cluster.LocalCluster) -> None:
        self.name = OURS
        self._cluster = cluster

    def ask(self, command: str, **arguments: Any) -> Any:
        """Asks all workers at once; the slowest one's seconds, and the loss of all of them."""
        if command == "weights":
            return self._cluster.ask_one(0, command, file=arguments["file"])
        answers = self._cluster.ask(command, **arguments)
        if command == "build":
            return None
        loss = sum(answer.get("loss", 0.0) for answer in answers)
        return {"seconds": max(answer["seconds"] for answer in answers), "loss": loss}


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, prints a table, writes JSON; returns the exit status."""
    args = _parser().parse_args(argv)
    try:
        settings = Settings(
            strategy=args.strategy,
            replicas=args.replicas,
            width=args.width,
            depth=args.depth,
            batch=args.batch,
            epsilon=EPSILON,
            steps=args.steps,
            warmup=args.warmup,
        )
        peers = args.peers or (PEERS if args.strategy == "mirrored" else IN_PROCESSES)
        if args.strategy == "workers" and (others := set(peers) - set(IN_PROCESSES)):
            raise OptionError(f"{min(others)} has all replicas in one process; leave it out")
        figures = _measure(settings, [*peers], _environment())
    except WuShardError as error:
        print(f"bench_peers: error: {error}", file=sys.stderr)
        return 2 if isinstance(error, OptionError) else 1
    print(_table(figures))
    if args.json is not None:
        args.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Update cost of sharded training steps against JAX and PyTorch.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "--strategy", choices=STRATEGIES, default="mirrored", help="as in wu-shard bench"
    )
    for name, default in (("replicas", 8), ("width", 2048), ("depth", 6), ("batch", 4)):
        parser.add_argument(f"--{name}", type=int, default=default, help="as in wu-shard bench")
    parser.add_argument("--steps", type=int, default=10, help="measured steps of each")
    parser.add_argument("--warmup", type=int, default=3, help="steps of each before those")
    parser.add_argument("--peers", nargs="+", choices=PEERS, help="which; all that fit")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the figures here")
    return parser


def _environment() -> pathlib.Path:
    """Returns the Python of the peers' environment, made first when it is missing or outdated."""
    folder = ROOT / "build" / "peers"
    python, stamp = folder / "bin" / "python", folder / "built-from"
    wanted = f"{folder}\n{REQUIREMENTS.read_text(encoding='utf-8')}"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return python
    _say("making the peers' environment in build/peers")
    try:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "-r", str(REQUIREMENTS)]
        subprocess.run(install, check=True)
    except subprocess.CalledProcessError as error:
        raise WuShardError(f"no environment for the peers: {error}; see {REQUIREMENTS}") from error
    stamp.write_text(wanted, encoding="utf-8")
    return python


def _measure(settings: Settings, peers: Sequence[str], python: pathlib.Path) -> dict[str, Any]:
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        contestants = {OURS: _ours(settings, stack)}
        problem = _write_problem(settings, contestants[OURS].workers["no_update"], folder)
        for peer in peers:
            contestants[peer] = _peer(peer, problem, python, stack)
        for number in range(1, settings.warmup + settings.steps + 1):
            _say(f"round {number} of {settings.warmup} + {settings.steps}")
            for contestant in contestants.values():
                _take_steps(contestant, keep=number > settings.warmup)
        # Last, as they go on from weights of which the losses are no longer the same.
        for _ in range(settings.steps if settings.strategy == "workers" else 0):
            for contestant in contestants.values():
                taken = contestant.workers["step"].ask("update")["seconds"]
                contestant.seconds["update"].append(taken)
    _check_same_work(contestants)
    found = {name: contestant.figures() for name, contestant in contestants.items()}
    return {
        "settings": dataclasses.asdict(settings),
        "systems": found,
        **_against_best(found, peers, "update_s", ""),
        **_against_best(found, peers, "least_update_s", "least_"),
        **(
            _against_best(found, peers, "update_alone_s", "alone_")
            if settings.strategy == "workers"
            else {}
        ),
        "mean_loss": {name: _mean_loss(c) for name, c in contestants.items()},
    }


def _against_best(
    found: dict[str, dict[str, float]], peers: Sequence[str], cost: str, prefix: str
) -> dict[str, Any]:
    best = min(peers, key=lambda peer: found[peer][cost])
    return {
        f"{prefix}best_peer": best,
        f"{prefix}ours_over_best": found[OURS][cost] / found[best][cost],
    }


def _ours(settings: Settings, stack: contextlib.ExitStack) -> Contestant:
    if settings.strategy == "workers":
        _say(f"{OURS}, {settings.replicas} workers: building")
        module = "tf_wu_shard.bench.cluster_worker"
        workers = _Workers(stack.enter_context(local_cluster.running(settings.replicas, module)))
        workers.ask("build", settings=dataclasses.asdict(settings), mode="sharded")
        return Contestant(dict.fromkeys(COMMANDS, workers))
    found: dict[str, Worker | _Workers] = {}
    for command, mode in (("step", "sharded"), ("no_update", "no_update")):
        _say(f"{OURS}, {mode}: building")
        found[command] = stack.enter_context(measure.start(mode))
        found[command].ask("build", settings=dataclasses.asdict(settings), mode=mode)
    return Contestant(found, losses_so_far=True)


def _peer(name: str, problem: str, python: pathlib.Path, stack: contextlib.ExitStack) -> Contestant:
    _say(f"{PEERS[name]}: building")
    command = [str(python), "-m", f"tools.peers.{name}"]
    # The peers' Python is to find its own packages only, wherever this one found its.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    worker = stack.enter_context(Worker(name, command, environment=environment, folder=ROOT))
    worker.ask("build", problem=problem)
    return Contestant(dict.fromkeys(COMMANDS, worker))


def _write_problem(settings: Settings, built: Worker | _Workers, folder: str) -> str:
    """Writes our first weights, our data and our Adam's numbers for the peers; returns the file."""
    weights_file, problem = (str(pathlib.Path(folder, name)) for name in ("w.npz", "problem.npz"))
    built.ask("weights", replica=0, file=weights_file)
    with np.load(weights_file) as weights:
        layers = [weights[name] for name in weights.files]
    inputs, targets = training.examples(settings)
    adam = optimizers.make("adam", EPSILON)
    numbers = {
        "replicas": settings.replicas,
        "learning_rate": float(adam.learning_rate),
        "beta_1": adam.beta_1,
        "beta_2": adam.beta_2,
        "epsilon": adam.epsilon,
        "layers": len(layers) // 2,
    }
    batches = (training.BATCHES, -1)
    arrays = {f"kernel_{layer}": kernel for layer, kernel in enumerate(layers[0::2])}
    arrays |= {f"bias_{layer}": bias for layer, bias in enumerate(layers[1::2])}
    arrays["inputs"] = inputs.reshape(*batches, inputs.shape[-1])
    arrays["targets"] = targets.reshape(*batches, targets.shape[-1])
    np.savez(problem, numbers=json.dumps(numbers), **arrays)
    return problem


def _take_steps(contestant: Contestant, keep: bool) -> None:
    for command, worker in contestant.workers.items():
        before = loopback.received_bytes()
        done = worker.ask("step" if contestant.losses_so_far else command)
        moved = loopback.bytes_between(before, loopback.received_bytes())
        if keep:
            contestant.seconds[command].append(done["seconds"])
            if command == "step":
                contestant.moved.append(moved or 0)
        if command == "step":
            contestant.losses.append(done["loss"] if "loss" in done else done["mean_loss"])


def _mean_loss(contestant: Contestant) -> float:
    """Over all steps; Keras's own figure is the mean so far, others' is the step's."""
    losses = contestant.losses
    return losses[-1] if contestant.losses_so_far else statistics.fmean(losses)


def _check_same_work(contestants: dict[str, Contestant]) -> None:
    ours = _mean_loss(contestants[OURS])
    for name, contestant in contestants.items():
        theirs = _mean_loss(contestant)
        if not math.isclose(theirs, ours, rel_tol=LOSS_TOLERANCE):
            raise DifferentWorkError(
                f"{name} trained to a mean loss of {theirs:.6g} and {OURS} to {ours:.6g} over the"
                f" same batches; they did not do the same work, so their times are not comparable"
            )


def _table(figures: dict[str, Any]) -> str:
    headings = ("step", "no update", "update", "least update")
    keys = ("step_s", "no_update_s", "update_s", "least_update_s")
    lines = [f"{'':<38}" + "".join(f"{heading:>14}" for heading in headings) + f"{'loss':>12}"]
    for name, found in figures["systems"].items():
        times = "".join(f"{f'{found[key]:.4f} s':>14}" for key in keys)
        lines.append(f"{PEERS.get(name, name):<38}{times}{figures['mean_loss'][name]:>12.6f}")
    lines.append("")
    if "alone_best_peer" in figures:
        lines.append(f"{'':<38}{'loopback a step':>18}{'update, no exchange':>22}")
        for name, found in figures["systems"].items():
            moved, alone = found["loopback_bytes"] / 1e6, found["update_alone_s"]
            lines.append(
                f"{PEERS.get(name, name):<38}{f'{moved:.1f} MB':>18}{f'{alone:.4f} s':>22}"
            )
        best, ratio = PEERS[figures["alone_best_peer"]], figures["alone_ours_over_best"]
        lines += ["", f"our update without its exchange over the best peer's ({best}): {ratio:.3f}"]
    for prefix, what in (("", "medians"), ("least_", "least times")):
        best, ratio = PEERS[figures[f"{prefix}best_peer"]], figures[f"{prefix}ours_over_best"]
        lines.append(f"our update over the best peer's ({best}), of {what}: {ratio:.3f}")
    return "\n".join(lines)


def _say(line: str) -> None:
    print(f"bench_peers: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
