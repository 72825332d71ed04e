"""The process that traces: `python -m tf_wu_shard.tpu_compiler.tracer`.

One command, `trace` (settings, sharded, hlo, scopes): writes the step's HLO and the part of the
step that each node belongs to, and answers what the pass says of it. TensorFlow lives here and JAX
does not; both in one process would fight over what they share.
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
from tf_wu_shard.tpu_compiler import step
from tf_wu_shard.tpu_compiler.body import replica_body
from tf_wu_shard.tpu_compiler.hlo import hlo_of
from tf_wu_shard.tpu_compiler.scopes import scopes_of
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
        `said`, what the pass says of the step, "" when it said nothing; `seconds`, how long it
        took.
    """
    start = time.perf_counter()
    if sharded:
        tf.config.optimizer.set_experimental_options({FLAG: settings.sharding_options})
    assert settings.model is not None
    graph = step.trace_model(
        settings.model,
        optimizer=settings.optimizer,
        batch=settings.batch,
        strategy=step.strategy_for(settings.slice),
    )
    body = replica_body(graph, settings.batch)
    hlo.write_bytes(hlo_of(body))
    found = {name: scope.value for name, scope in scopes_of(body.graph_def).items()}
    scopes.write_text(json.dumps(found), encoding="utf-8")
    said = "; ".join(report.headline for report in tf_wu_shard.reports())
    return {"said": said, "seconds": time.perf_counter() - start}


def main() -> int:
    """Serves one parent; returns the exit status."""
    channel = Channel()
    while (command := channel.command()) is not None:
        try:
            channel.answer(_answer(**command))
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
