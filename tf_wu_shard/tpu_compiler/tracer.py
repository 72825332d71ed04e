"""The process that traces: `python -m tf_wu_shard.tpu_compiler.tracer`.

One command, `trace` (settings, sharded, hlo, scopes): writes the step's HLO and the part of the
step that each node belongs to, and answers what the pass says of it, or an `error` in one line.
TensorFlow lives here and JAX does not; both in one process would fight over what they share.
"""

from __future__ import annotations

import json
import pathlib
import sys
import time
from typing import Any

import tensorflow as tf

import tf_wu_shard
from tf_wu_shard.bench.conversation import Channel
from tf_wu_shard.config import FLAG
from tf_wu_shard.errors import OptionError, WuShardError
from tf_wu_shard.report.report import facts
from tf_wu_shard.tpu_compiler import step
from tf_wu_shard.tpu_compiler.body import ReplicaBody, replica_body
from tf_wu_shard.tpu_compiler.hlo import hlo_of
from tf_wu_shard.tpu_compiler.scopes import scopes_of
from tf_wu_shard.tpu_compiler.script import trace_script
from tf_wu_shard.tpu_compiler.settings import Settings


def trace(
    settings: Settings, sharded: bool, hlo: pathlib.Path, scopes: pathlib.Path
) -> dict[str, Any]:
    """Traces a step and lowers it.

    Args:
        settings: What to trace.
        sharded: Whether the flag is on.
        hlo: Where the serialized HloModuleProto goes.
        scopes: Where the parts of the step go, JSON of the scope of each node.

    Returns:
        `said`, what the pass says of the step, "" when it said nothing; `batch`, examples a
        replica; `fingerprint`, equal for equal steps; `seconds`, how long it took.
    """
    start = time.perf_counter()
    if sharded:
        tf.config.optimizer.set_experimental_options({FLAG: settings.sharding_options})
    body = replica_body(_graph(settings), settings.batch)
    hlo.write_bytes(hlo_of(body))
    found = {name: scope.value for name, scope in scopes_of(body.graph_def).items()}
    scopes.write_text(json.dumps(found), encoding="utf-8")
    said = "; ".join(
        line for report in tf_wu_shard.reports() for line in (report.headline, *facts(report))
    )
    return {
        "said": said,
        "batch": _batch(body),
        "fingerprint": body.fingerprint,
        "seconds": time.perf_counter() - start,
    }


def _graph(settings: Settings) -> Any:
    if settings.script is not None:
        return trace_script(settings.script, settings.arguments, settings.slice)
    assert settings.model is not None and settings.batch is not None
    return step.trace_model(
        settings.model,
        optimizer=settings.optimizer,
        batch=settings.batch,
        strategy=step.strategy_for(settings.slice),
    )


def _batch(body: ReplicaBody) -> int | None:
    """Examples a replica: the first dimension of the first input that has one."""
    return next((a.shape[0] for a in body.arguments if not a.is_variable and a.shape), None)


def main() -> int:
    """Serves one parent; returns the exit status."""
    channel = Channel()
    while (command := channel.command()) is not None:
        try:
            channel.answer(_answer(**command))
        except OptionError as error:
            channel.fail(error)
        except WuShardError as error:
            # Made for the user, who need not know of this process.
            channel.answer({"error": str(error)})
        # Whatever it was, the parent is to hear of it; here it would only be printed.
        except Exception as error:
            channel.fail(error)
    return 0


def _answer(
    command: str, settings: dict[str, Any], sharded: bool, hlo: str, scopes: str
) -> dict[str, Any]:
    assert command == "trace", f"no command is called {command}"
    arguments = tuple(settings.pop("arguments"))
    asked = Settings(arguments=arguments, **settings)
    return trace(asked, sharded, pathlib.Path(hlo), pathlib.Path(scopes))


if __name__ == "__main__":
    sys.exit(main())
