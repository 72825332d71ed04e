"""Runs a script up to its first train step, and answers for what was traced by then.

The script is stopped when it is about to run a function that trains. Nothing of it runs from there
on: no exception passes through it, so no handler, callback or exit hook of it can write anything.
"""

from __future__ import annotations

import functools
import inspect as signatures
import os
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import tensorflow as tf

from tf_wu_shard.config import ShardingOptions, current_options
from tf_wu_shard.errors import OptionError
from tf_wu_shard.graph_pass import record
from tf_wu_shard.inspection.answers.answer import SCRIPT, FunctionAnswer, Inspection
from tf_wu_shard.inspection.inspect import inspect
from tf_wu_shard.inspection.reading.function_names import short_name
from tf_wu_shard.inspection.steps.grounds import Question
from tf_wu_shard.reachable import reachable
from tf_wu_shard.script_inspection import replicated_step, training
from tf_wu_shard.script_inspection.live_model import live_model
from tf_wu_shard.script_inspection.replicated_step import ReplicatedStep
from tf_wu_shard.tensorflow_private import (
    function_graph,
    shared_input,
    step_stop,
    tpu_script,
    traced_graphs,
)
from tf_wu_shard.tensorflow_private.tpu_strategy import tpu_topology
from tf_wu_shard.tensorflow_private.traced_only import make_traced_only
from tf_wu_shard.topology import Topology

Answer = Inspection | OptionError | str

_EAGER = (
    "trains outside of any tf.function: there is no whole graph of such a step that could be looked"
    " at"
)
_SESSION = (
    "trains by a session of TensorFlow 1: write its graph with"
    " tf.compat.v1.train.export_meta_graph('model.meta') and give that file instead of --script"
)


class Stop:
    """Watches this process, and ends it before it trains."""

    def __init__(self, script: str, question: Question, give: Callable[[Answer], NoReturn]) -> None:
        """Watches from now on.

        Args:
            script: The script.
            question: What is asked of its steps.
            give: Hands over an answer and ends the process; gets the answer about the steps, or
                why there is nothing to say.
        """
        self._script = os.path.realpath(script)
        self._shown = script
        self._question = question
        self._give = give
        self._steps: weakref.WeakKeyDictionary[Any, ReplicatedStep] = weakref.WeakKeyDictionary()
        self._failed: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._trains: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()
        self._is_answering = False
        traced_graphs.replace(self._see)
        step_stop.before_calls(self._before_call)
        step_stop.before_eager_gradients(self.refuse_eager_step)
        step_stop.before_eager_updates(self.refuse_eager_step)
        step_stop.before_session_runs(self._before_session)
        if question.topology is not None:
            _let_tpus_be_found(question.topology)

    def _see(self, graph: Any, seconds: float) -> Any:
        """Looks at a traced function in the place of the pass, which would rewrite it."""
        handles = function_graph.captured_handles(graph)
        options = current_options() or ShardingOptions()
        step: ReplicatedStep | None = None
        reported = {seen: own.outcome.reported for seen, own in self._steps.items()}
        try:
            step = replicated_step.replicated_step(graph, options, reported)
        # A failure of ours is not the script's.
        except Exception as error:
            self._failed[graph] = _error_text(error)
        if step is not None:
            self._steps[graph] = step
        if step is None or not step.is_planned:
            # What the pass rewrites no longer reads whole slots.
            record(graph, handles)
        return graph

    def _before_call(self, function: Any) -> None:
        if not self._is_answering and self._is_training(function.graph):
            self._finish(function)

    def _is_training(self, graph: Any) -> bool:
        if graph not in self._trains:
            steps = any(g in self._steps for g in _with_called(graph))
            self._trains[graph] = steps or training.trains(graph)
        return self._trains[graph]

    def refuse_eager_step(self) -> NoReturn:
        """Ends the process as it is about to train outside of any function."""
        self._refuse(_EAGER)

    def _before_session(self, types: set[str]) -> None:
        if any("Apply" in op_type for op_type in types):
            self._refuse(_SESSION)

    def _refuse(self, why: str) -> NoReturn:
        self._give(f"{self._place()} {why}")

    def _place(self) -> str:
        frame: types.FrameType | None = sys._getframe()
        while frame is not None:
            if os.path.realpath(frame.f_code.co_filename) == self._script:
                return f"{self._shown}, line {frame.f_lineno}"
            frame = frame.f_back
        return self._shown

    def _finish(self, function: Any) -> NoReturn:
        name = function_graph.title(function.graph)
        how = (
            f"{self._place()}: the script was stopped here, before {name} ran for the first time;"
            " what comes after was not seen."
        )
        try:
            answer = self._answer([function], how)
        # Nothing may pass through the script, not even an interrupt: it might go on.
        except BaseException as error:
            answer = f"{self._place()}: {name} cannot be looked at: {_error_text(error)}"
        self._give(answer)

    def at_the_end(self) -> Answer:
        """The answer for a script that ended and ran no train step."""
        return self._answer([], "The script ran to its end and ran no train step.")

    def _answer(self, functions: list[Any], how: str) -> Answer:
        self._is_answering = True
        alive = [
            f
            for f in step_stop.concrete_functions()
            if not function_graph.is_nested(f.graph) and self._is_training(f.graph)
        ]
        # A function that makes its variables when it is first called is traced twice: the last
        # trace is the one that runs.
        by_signature: dict[Any, Any] = {}
        for function in (*functions, *sorted(alive, key=_turn, reverse=True)):
            signature = str(function.structured_input_signature)
            by_signature.setdefault((function_graph.title(function.graph), signature), function)
        question = Question(
            self._question.replicas,
            self._question.topology,
            options=current_options(),
            diff=self._question.diff,
        )
        found, variables, notes = self._answers(list(by_signature.values()), question)
        only = self._question.function
        if only is not None:
            found = [f for f in found if only in (f.name, short_name(f.name))]
            if not found:
                return OptionError(f"the script traced no function {only!r} that trains")
        return Inspection(SCRIPT, variables, tuple(found), notes, how=how)

    def _answers(
        self, functions: list[Any], question: Question
    ) -> tuple[list[FunctionAnswer], int, tuple[str, ...]]:
        """The answer about functions, how many variables they use, what is to be noted."""
        found: list[FunctionAnswer] = []
        alone: list[Any] = []
        variables = 0
        for function in functions:
            called = list(_with_called(function.graph))
            failed = [self._failed[g] for g in called if g in self._failed]
            steps = [self._steps[g] for g in called if g in self._steps]
            for step in steps:
                found += replicated_step.answers(step, question)
                variables += replicated_step.count_variables(step)
            title = function_graph.title(function.graph)
            if failed:
                verdict = f"not looked at: {failed[0]}"
                found.append(FunctionAnswer(title, True, verdict, refusal=failed[0]))
            elif not steps and any(map(replicated_step.is_replicated, called)):
                verdict = (
                    "trains on several replicas and sums no gradient over them: nothing to share"
                )
                found.append(FunctionAnswer(title, True, verdict))
            elif not steps:
                alone.append(function)
            elif title not in [step.title for step in steps]:
                by = steps[0].title
                verdict = f"trains by calling {by}"
                found.append(FunctionAnswer(title, True, verdict, trained_by=by))
        unread = tuple(f"{f.name}: {f.refusal}" for f in found if f.refusal)
        if not alone:
            return found, variables, unread
        inspection = inspect(live_model(alone), question)
        return (
            [*found, *inspection.functions],
            variables + inspection.variables,
            (*unread, *inspection.notes),
        )


def _error_text(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _turn(function: Any) -> int:
    """When a function was traced: TensorFlow counts them in their names."""
    number = tf.compat.as_str(function.name).rpartition("_")[2]
    return int(number) if number.isdecimal() else 0


def _with_called(graph: Any) -> Iterator[Any]:
    """A FuncGraph, and those of all functions, branches and bodies that it calls."""

    def called(found: Any) -> list[Any]:
        inner = (function_graph.inner_graph(found, name) for name in found._functions)
        return [one for one in inner if one is not None]

    return reachable([graph], called)


def _let_tpus_be_found(topology: Topology) -> None:
    """A script that looks for a TPU finds this slice, on which nothing can run."""
    where = tpu_topology(topology.mesh, topology.coordinates)
    tpu_script.install(topology.num_devices, where, make_traced_only)
    shared_input.install()


def before_eager_steps(optimizer: Any, name: str, stop: Stop) -> None:
    """Stops a script that is about to apply gradients outside of any function.

    Args:
        optimizer: The class of all optimizers of a Keras.
        name: Its method that applies them.
        stop: What ends the process.
    """
    step_stop.ask_before(optimizer, name, stop.refuse_eager_step)


def without_callbacks(trainer: Any) -> None:
    """Lets `fit` of a Keras trainer run without callbacks: they write before the first step.

    Args:
        trainer: The class.
    """
    original = trainer.fit
    signature = signatures.signature(original)

    @functools.wraps(original)
    def fit(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        given.arguments |= {"callbacks": None, "verbose": 0}
        return original(*given.args, **given.kwargs)

    trainer.fit = fit
