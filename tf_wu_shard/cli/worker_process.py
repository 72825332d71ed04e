"""The process of one worker of a local cluster: `wu-shard run` as ever, but it tells its starter.

Answers: what a worker does with what `local_workers` hands it. The verdict goes into a file, for
all workers' verdicts to be told together. On Linux the process ends with the one that started it,
however that ends; elsewhere it outlives one that was ended by SIGKILL.
"""

from __future__ import annotations

import argparse
import ctypes
import io
import json
import os
import pathlib
import signal
import sys

from tf_wu_shard.cli import run
from tf_wu_shard.cli.main import parser_of

# <linux/prctl.h>
_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Runs the script that the last argument of this process describes.

    Returns:
        0 for a script that ended well, whatever the verdict: that it makes a good run a failed one
        is told, not returned, as other workers' scripts may not be at their end.

    Raises:
        BaseException: Whatever ended the script otherwise, for the interpreter to show.
    """
    asked = json.loads(sys.argv[-1])
    _end_with(asked["starter"])
    # As on a terminal: a line is seen when it is printed, and not lost when the process is killed.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    args = argparse.Namespace(**asked["options"], parser=parser_of("run"))
    if asked["report"] is not None:
        args.report = pathlib.Path(asked["report"])
    told = pathlib.Path(asked["told"])
    verdicts: list[str] = []

    def tell(verdict: str) -> None:
        verdicts.append(verdict)
        told.write_text(json.dumps({"verdict": verdict, "refused": False}), encoding="utf-8")

    if run.run_here(args, tell):
        verdict = verdicts[-1] if verdicts else None
        told.write_text(json.dumps({"verdict": verdict, "refused": True}), encoding="utf-8")
    return 0


def _end_with(starter: int) -> None:
    """Has the kernel kill this process when the one that started it ends."""
    if sys.platform == "linux":
        kernel = ctypes.CDLL(None, use_errno=True)
        if kernel.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL):
            why = os.strerror(ctypes.get_errno())
            print(f"wu-shard: it will outlive a starter that is killed: {why}.", file=sys.stderr)
    # It may have ended before the kernel was asked.
    if os.getppid() != starter:
        sys.exit(f"wu-shard: process {starter} ended before its worker ran")
