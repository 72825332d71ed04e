"""Has a script looked at in a process of its own, whatever it does to that process."""

from __future__ import annotations

import json
import pathlib
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Sequence

import tf_wu_shard
from tf_wu_shard.cli.ended import ended_text
from tf_wu_shard.errors import OptionError, WuShardError
from tf_wu_shard.inspection.answers.answer import SCRIPT, Inspection
from tf_wu_shard.inspection.formats.text import printable
from tf_wu_shard.inspection.steps.grounds import Question

_PROCESS = "tf_wu_shard.cli.traced_script"

# The process is to find this package where this one has it, after all that the script may import.
_START = f"""
import runpy, sys
sys.path.append(sys.argv.pop(1))
runpy.run_module({_PROCESS!r}, run_name="__main__", alter_sys=True)
"""


class ScriptError(WuShardError, RuntimeError):
    """A script failed, or ended its process, before it trained; the message has its own words."""


def inspect_script(script: str, arguments: Sequence[str], question: Question) -> Inspection:
    """Runs a script up to its first train step and takes the answer about it.

    The script's own output goes to standard error. It reads nothing from standard input.

    Args:
        script: The script.
        arguments: What it finds in `sys.argv[1:]`.
        question: What is asked of its train steps.

    Returns:
        The answer; one without functions where the script trained nothing.

    Raises:
        OptionError: The question names a function that trains nowhere.
        ScriptError: The script failed before it trained, or trains in a way that cannot be looked
            at.
    """
    asked = {
        "replicas": question.replicas,
        "topology": None if question.topology is None else question.topology.name,
        "function": question.function,
        "diff": question.diff,
    }
    here = pathlib.Path(tf_wu_shard.__file__).parents[1]
    with tempfile.TemporaryDirectory(prefix="wu_shard_") as folder:
        answer = pathlib.Path(folder) / "answer"
        command = [sys.executable, "-c", _START, str(here)]
        command += [str(answer), json.dumps(asked), script, *arguments]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=2, check=False)
        if not answer.exists():
            raise ScriptError(
                f"{script}: its process {ended_text(done.returncode)} before it trained"
            )
        # The script could run anything in this user's name all along.
        try:
            answered = pickle.loads(answer.read_bytes())
        # It may have changed whatever it answers with.
        except Exception as error:
            raise ScriptError(
                f"{script}: no answer comes of it ({type(error).__name__})"
            ) from error
    if answered is None:
        how = "The script ran to its end and never imported TensorFlow."
        return Inspection(SCRIPT, 0, (), (), how=how)
    if isinstance(answered, OptionError):
        raise answered
    if isinstance(answered, str):
        raise ScriptError(printable(answered))
    assert isinstance(answered, Inspection), "the process answers as this module expects"
    return answered
