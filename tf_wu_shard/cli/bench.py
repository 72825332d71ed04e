"""`wu-shard bench`: what a sharded step costs against an unsharded one, in time and memory.

Answers: figures, in a table and as JSON. It judges nothing: a slow step is no failure here, only a
step that could not be measured is.
"""

from __future__ import annotations

import argparse
import pathlib
import sys

from tf_wu_shard.bench import cluster, measure, scaling
from tf_wu_shard.bench.imbalance.delays import KINDS
from tf_wu_shard.bench.imbalance.measure import TASKS, measure_imbalance
from tf_wu_shard.bench.imbalance.page import page
from tf_wu_shard.bench.imbalance.result import ImbalanceResult
from tf_wu_shard.bench.optimizers import SLOTS
from tf_wu_shard.bench.result import Result
from tf_wu_shard.bench.settings import STRATEGIES, Settings
from tf_wu_shard.errors import OptionError
from tf_wu_shard.report.html import render

_DEFAULT = Settings()

# Of trainings under an imbalance: accuracy takes more steps to tell than time does.
_IMBALANCE_STEPS = 200
_IMBALANCE_BATCH = 8


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the parser of `wu-shard bench`.

    Args:
        subparsers: What `ArgumentParser.add_subparsers` returned.
    """
    parser = subparsers.add_parser(
        "bench",
        help="measure time and memory of a sharded step against an unsharded one",
        description="Steps of three processes (unsharded, sharded, gradients only) in turn; with"
        " --strategy workers, launches of clusters in turn; with --imbalance, trainings of workers"
        " that are not equally fast, synchronous and with partial sums.",
        allow_abbrev=False,
    )
    _add_what(parser)
    _add_how(parser)
    _add_imbalance(parser)


def run(args: argparse.Namespace) -> int:
    """Measures, prints the table and writes the JSON file.

    Args:
        args: The parsed arguments.

    Returns:
        0; whatever could not be measured raises.

    Raises:
        OptionError: An argument names nothing known, is out of range, or cannot be written to.
        WuShardError: A measured process failed.
    """
    _check_writable(args.json, "--json")
    _check_writable(args.report, "--report")
    if args.report is not None and args.imbalance is None:
        raise OptionError("--report draws what --imbalance measures; give both, or --json")
    result: Result | scaling.Scaling | cluster.ClusterResult | ImbalanceResult
    if args.imbalance is not None:
        result = _measure_imbalance(args)
        if args.report is not None:
            args.report.write_text(render(page(result)), encoding="utf-8")
    elif args.scaling:
        replicas = scaling.DEFAULT_REPLICAS if args.replicas is None else args.replicas
        result = scaling.measure_scaling(args.optimizer, replicas, _say)
    elif args.strategy == "workers":
        result = cluster.measure_cluster(_settings(args), args.launches, _say)
    else:
        result = measure.measure(_settings(args), _say)
    print(result)
    if args.json is not None:
        args.json.write_text(result.to_json(), encoding="utf-8")
    return 0


def _add_what(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--strategy",
        choices=STRATEGIES,
        default=_DEFAULT.strategy,
        help="what makes the replicas (default: %(default)s)",
    )
    parser.add_argument(
        "--replicas",
        type=int,
        help=f"how many (default: {_DEFAULT.replicas}, workers: {cluster.DEFAULT_WORKERS},"
        f" --scaling: {scaling.DEFAULT_REPLICAS})",
    )
    parser.add_argument(
        "--model", default=_DEFAULT.model, help="a name in tf_wu_shard.models (default: mlp)"
    )
    parser.add_argument("--width", type=int, help="of the model (default for mlp: 2048)")
    parser.add_argument("--depth", type=int, help="of the model (default for mlp: 6)")
    parser.add_argument(
        "--batch",
        type=int,
        help=f"examples a replica and step (default: {_DEFAULT.batch}; --imbalance:"
        f" {_IMBALANCE_BATCH})",
    )
    parser.add_argument(
        "--optimizer",
        choices=tuple(SLOTS),
        default=_DEFAULT.optimizer,
        help="the update rule (default: %(default)s)",
    )


def _add_how(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--steps",
        type=int,
        help=f"measured steps of each mode (default: {_DEFAULT.steps}; --imbalance:"
        f" {_IMBALANCE_STEPS})",
    )
    parser.add_argument(
        "--warmup",
        type=int,
        default=_DEFAULT.warmup,
        help="steps of each mode before those (default: %(default)s)",
    )
    parser.add_argument(
        "--seed", type=int, default=_DEFAULT.seed, help="of weights and data (default: %(default)s)"
    )
    parser.add_argument(
        "--launches",
        type=int,
        default=5,
        help="with --strategy workers, launches of each mode (default: %(default)s)",
    )
    parser.add_argument(
        "--min-elements", type=int, metavar="N", help="variables below N elements stay replicated"
    )
    parser.add_argument(
        "--scaling",
        action="store_true",
        help="instead: the pass on 200 and on 2,000 variables, and on a function with no gradients",
    )
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the figures here")


def _add_imbalance(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--imbalance",
        choices=KINDS,
        help="instead: trainings of workers of which one, drawn for each step, is late; all are, by"
        " a ramp that shifts; none is, though each step takes longer; or that get texts of unequal"
        " lengths",
    )
    parser.add_argument(
        "--late",
        type=float,
        default=80.0,
        metavar="MS",
        help="with --imbalance, by how many milliseconds at most (default: %(default)g)",
    )
    parser.add_argument(
        "--task",
        choices=TASKS,
        help="with --imbalance, what is trained (default: digits; --imbalance text: text)",
    )
    parser.add_argument(
        "--seeds",
        type=int,
        default=5,
        help="with --imbalance, trainings of each mode (default: %(default)s)",
    )
    parser.add_argument(
        "--max-staleness",
        type=int,
        default=2,
        help="with --imbalance, of tf_wu_shard.PartialSums (default: %(default)s)",
    )
    parser.add_argument(
        "--report",
        type=pathlib.Path,
        metavar="FILE",
        help="with --imbalance, write a page with pictures here",
    )


def _measure_imbalance(args: argparse.Namespace) -> ImbalanceResult:
    return measure_imbalance(
        args.imbalance,
        args.late,
        args.task or ("text" if args.imbalance == "text" else "digits"),
        cluster.DEFAULT_WORKERS if args.replicas is None else args.replicas,
        _IMBALANCE_BATCH if args.batch is None else args.batch,
        _IMBALANCE_STEPS if args.steps is None else args.steps,
        args.seeds,
        args.max_staleness,
        _say,
    )


def _settings(args: argparse.Namespace) -> Settings:
    width, depth = args.width, args.depth
    if args.model == "mlp":
        # The paper-sized default: 25.2 million parameters.
        width, depth = 2048 if width is None else width, 6 if depth is None else depth
    return Settings(
        strategy=args.strategy,
        replicas=_replicas(args),
        model=args.model,
        width=width,
        depth=depth,
        batch=_DEFAULT.batch if args.batch is None else args.batch,
        optimizer=args.optimizer,
        steps=_DEFAULT.steps if args.steps is None else args.steps,
        warmup=args.warmup,
        seed=args.seed,
        min_elements=args.min_elements,
    )


def _replicas(args: argparse.Namespace) -> int:
    if args.replicas is not None:
        return int(args.replicas)
    return cluster.DEFAULT_WORKERS if args.strategy == "workers" else _DEFAULT.replicas


def _check_writable(file: pathlib.Path | None, option: str) -> None:
    """Minutes of measuring must not end in a file that cannot be written."""
    if file is None:
        return
    try:
        file.open("a", encoding="utf-8").close()
    except OSError as error:
        raise OptionError(f"{option}: cannot write {file}: {error.strerror}") from error


def _say(line: str) -> None:
    print(f"wu-shard bench: {line}", file=sys.stderr, flush=True)
