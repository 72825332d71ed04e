"""The process in which `wu-shard inspect --script` runs a script: `traced_script ANSWER ASKED ...`.

Arguments are the file that the answer goes to, what is asked (JSON), the script, and its own
arguments. A process that the script forks answers too where it trains. TensorFlow and Keras are
left for the script to import. It does not promise to hold back processes that the script spawns:
those are plain interpreters.
"""

from __future__ import annotations

import functools
import importlib
import json
import multiprocessing
import os
import pathlib
import pickle
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from tf_wu_shard import deferred
from tf_wu_shard.cli import program
from tf_wu_shard.script_words import in_its_words, text_of
from tf_wu_shard.tensorflow_private.training_modules import OPTIMIZERS, TPU_MODULES, TRAINERS
from tf_wu_shard.topology import parse_topology

if TYPE_CHECKING:
    from tf_wu_shard.script_inspection.stop import Stop


def main() -> int:
    """Runs the script; returns the exit status of this process."""
    answer, asked, script, *arguments = sys.argv[1:]
    file = pathlib.Path(answer).absolute()
    question = json.loads(asked)
    first = os.getpid()
    watching: list[Stop] = []
    imported: list[str] = []

    def give(answer: Any) -> NoReturn:
        try:
            _write(file, answer)
        finally:
            _leave()

    def tensorflow() -> None:
        watching.append(_watching(script, question, give))
        for package in imported:
            _watch_keras(package, watching[0])

    def keras(package: str) -> None:
        if package == "keras" and (backend := _keras_backend()) != "tensorflow":
            # It would train without a function of TensorFlow, and so to its end.
            give(f"{script} uses Keras on {backend}: there is no graph of TensorFlow's")
        if watching:
            _watch_keras(package, watching[0])
        else:
            # TensorFlow imports it, and is not yet whole itself.
            imported.append(package)

    deferred.when_imported("tensorflow", tensorflow)
    for package in TRAINERS:
        deferred.when_imported(package, functools.partial(keras, package))
    try:
        program.run_script(script, arguments)
    except SystemExit as stop:
        if os.getpid() != first:
            raise
        if stop.code not in (None, 0):
            _write(file, in_its_words(script, stop, "it trained"))
            return 0
    # Whatever a script may raise.
    except BaseException as error:
        if os.getpid() != first:
            raise
        hint = _hint(error, question["topology"])
        _write(file, in_its_words(script, error, "it trained") + hint)
        return 0
    # What it forked may end at any time, in any way, while it goes on.
    if os.getpid() == first:
        _write(file, watching[0].at_the_end() if watching else None)
    return 0


def _watching(script: str, question: dict[str, Any], give: Callable[[Any], NoReturn]) -> Stop:
    from tf_wu_shard.inspection.steps.grounds import Question
    from tf_wu_shard.script_inspection.stop import Stop

    slice_ = None if question["topology"] is None else parse_topology(question["topology"])
    asked = Question(question["replicas"], slice_, question["function"], diff=question["diff"])
    return Stop(script, asked, give)


def _keras_backend() -> str:
    import keras

    return str(keras.config.backend())


def _watch_keras(package: str, stop: Stop) -> None:
    """Holds back what a Keras does besides running functions."""
    from tf_wu_shard.script_inspection.stop import before_eager_steps, without_callbacks

    module, name = TRAINERS[package]
    without_callbacks(getattr(importlib.import_module(module), name))
    for module, name, method in OPTIMIZERS[package]:
        before_eager_steps(getattr(importlib.import_module(module), name), method, stop)


def _hint(error: BaseException, topology: str | None) -> str:
    """What to do where the error is that there is no TPU."""
    traceback = error.__traceback__
    if topology is not None and "TPU" in text_of(error):
        return f"; on the TPU that --topology {topology} stands for nothing runs, it only traces"
    while topology is None and traceback is not None:
        module = str(traceback.tb_frame.f_globals.get("__name__", ""))
        if f"{module}.".startswith(TPU_MODULES):
            return "; this machine has no TPU: --topology NAME, such as v5e:2x4, lets it find one"
        traceback = traceback.tb_next
    return ""


def _write(file: pathlib.Path, answer: Any) -> None:
    """Hands an answer over; the first one counts, of this process or one that it forked."""
    if file.exists():
        return
    part = file.with_suffix(f".{os.getpid()}")
    try:
        data = pickle.dumps(answer)
    # An answer of ours that cannot be sent is not the script's fault.
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        data = pickle.dumps(f"the answer cannot be handed over: {error}")
    part.write_bytes(data)
    part.replace(file)


def _leave() -> NoReturn:
    """Ends this process at once, and those that feed it."""
    try:
        for process in multiprocessing.active_children():
            process.terminate()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        # The script may have put anything in the place of these.
        os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
