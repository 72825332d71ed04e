"""An unmodified training script for a TPU, run until it traces its first train step.

It finds a TPU whatever name it asks for, with a replica on each device, and never notices that none
is there: the step that it would run first is where it is left. It does not promise that a script
gets that far which runs something else on the TPU before, an evaluation say.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from typing import Any

from tf_wu_shard.errors import WuShardError
from tf_wu_shard.script_words import in_its_words
from tf_wu_shard.tensorflow_private import shared_input, tpu_script
from tf_wu_shard.tensorflow_private.tpu_strategy import tpu_topology
from tf_wu_shard.tensorflow_private.traced_only import make_traced_only
from tf_wu_shard.topology import Topology
from tf_wu_shard.tpu_compiler.step import NoTrainStepError, traced_step


class ScriptError(WuShardError, RuntimeError):
    """The script failed before it traced a train step; the message has its own words."""


def trace_script(path: str, arguments: Sequence[str], topology: Topology) -> Any:
    """Runs a script, once and in this process, until it traces a train step.

    Args:
        path: The script.
        arguments: What it finds in `sys.argv[1:]`.
        topology: The slice that it finds.

    Returns:
        The FuncGraph of the step, rewritten if the flag is on.

    Raises:
        NoTrainStepError: The script ended before.
        ScriptError: The script failed before.
    """
    where = tpu_topology(topology.mesh, topology.coordinates)
    tpu_script.install(topology.num_devices, where, make_traced_only)
    shared_input.install()
    sys.argv = [path, *arguments]
    sys.path[0] = os.path.dirname(os.path.realpath(path))
    try:
        return traced_step(lambda: runpy.run_path(path, run_name="__main__"))
    except NoTrainStepError as error:
        raise NoTrainStepError(f"{path} ended before: {error}") from error
    # Whatever a script may raise.
    except BaseException as error:
        raise ScriptError(in_its_words(path, error, "it traced a train step")) from error
