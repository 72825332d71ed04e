"""Looks at a model: which functions train, what their updates are, what would be sharded.

It composes the stages that the pass has too, on views of what the model's files hold. The stages
expect graphs that TensorFlow made; where a file's graph breaks one all the same, that function is
left out and the answer says so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from tf_wu_shard.errors import OptionError, WuShardError
from tf_wu_shard.grounds.in_process.collectives import InProcess
from tf_wu_shard.grounds.in_process.recognise import replica_devices
from tf_wu_shard.inspection.answers.answer import FunctionAnswer, Inspection
from tf_wu_shard.inspection.answers.describing import GUESSED, described, written_variables
from tf_wu_shard.inspection.reading.calls import WRITERS, Calls
from tf_wu_shard.inspection.reading.function_names import short_name
from tf_wu_shard.inspection.reading.function_view import (
    FunctionView,
    view_of_function,
    view_of_graph,
)
from tf_wu_shard.inspection.reading.reference_variables import reference_weights, said_of
from tf_wu_shard.inspection.steps import grounds
from tf_wu_shard.inspection.steps.grounds import Question
from tf_wu_shard.inspection.steps.nested_steps import FoundStep, steps_in
from tf_wu_shard.model_files.graph_variables import GIVEN
from tf_wu_shard.model_files.types import BoundFunction, Model
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.replicas import in_this_process
from tf_wu_shard.tensorflow_private import traced_graphs
from tf_wu_shard.weight_update.analysis.analyze import analyze

# What a model's own graph is called in the answer.
GRAPH = "(graph)"

_COLLECTIVES = frozenset({"CollectiveReduce", "CollectiveReduceV2", "CollectiveReduceV3"})
_UNTIED = (
    "left alone: it sums gradients over replicas (CollectiveReduce), and the file does not tell"
    " which variables are components of one; a SavedModel does, and so does --script"
)
_ONE_FOR_ALL = (
    "left alone: it was traced for several replicas of one process, and the file keeps one variable"
    " for all of them, so that their copies of the update cannot be told apart; a SavedModel with"
    " VariablePolicy.EXPAND_DISTRIBUTED_VARIABLES keeps them, and so does --script"
)
_NO_WRITES = "0 variable writes, nothing to shard"


def inspect(model: Model, question: Question) -> Inspection:
    """Answers what of a model would be sharded.

    Args:
        model: The model.
        question: For which replicas, and of which functions.

    Returns:
        The answer. What could not be looked at is among its notes.

    Raises:
        OptionError: The question names a function that the model does not have.
    """
    with traced_graphs.no_garbage_collection():
        return _inspection(model, question)


def _inspection(model: Model, question: Question) -> Inspection:
    calls = Calls(model.functions)
    wanted = list(_wanted(model, calls, question.function))
    inspecting = _Inspecting(model, calls, question, wanted)
    answers = _by_call([a for function in wanted for a in inspecting.answers(function)])
    if question.function in (None, GRAPH):
        answers += inspecting.of_the_graph()
    notes = [f"{a.name}: {a.refusal}" for a in answers if a.refusal]
    diffs = ((a.name, a.diff.refusal) for a in answers if a.diff is not None)
    notes += [f"{name}: no diff: {refusal}" for name, refusal in diffs if refusal]
    return Inspection(
        model.form, len(model.variables), tuple(answers), (*model.notes, *dict.fromkeys(notes))
    )


def _by_call(answers: list[FunctionAnswer]) -> list[FunctionAnswer]:
    """The same answers; who calls a function that trains nothing trains nothing either."""
    idle = {a.name for a in answers if not a.trains and not a.refusal}
    return [
        FunctionAnswer(a.name, False, f"calls {a.trained_by}, which trains nothing")
        if a.trained_by in idle
        else a
        for a in answers
    ]


def _wanted(model: Model, calls: Calls, only: str | None) -> Iterator[BoundFunction]:
    """The functions that the model offers; where it does not say, those that no other calls."""
    bound = {f.name: f for f in model.bound if f.name in model.functions}
    if only is not None and only != GRAPH:
        named = [name for name in model.functions if only in (name, short_name(name))]
        if not named:
            raise OptionError(f"the model has no function {only!r}")
        yield from (bound.get(name, BoundFunction(name, ())) for name in named)
    elif only is None and bound:
        yield from bound.values()
    elif only is None:
        outer = [name for name in model.functions if name not in calls.called]
        yield from (BoundFunction(name, ()) for name in outer or model.functions)


def _train_ops(model: Model) -> tuple[str, ...]:
    """The ops of the model's own graph that train: as it says, or all that update variables."""
    if not model.handles or model.train_ops:
        return model.train_ops if model.handles else ()
    given = {node.name for node in model.graph_def.node if node.op in GIVEN}
    # A plain assignment of a variable that the graph makes may be an initializer or a restore.
    return tuple(
        node.name
        for node in model.graph_def.node
        if node.op in WRITERS
        and (node.op != "AssignVariableOp" or given.issuperset(node.input[:1]))
    )


class _Inspecting:
    def __init__(
        self, model: Model, calls: Calls, question: Question, wanted: list[BoundFunction]
    ) -> None:
        self._model = model
        self._calls = calls
        self._question = question
        self._wanted = {function.name: function for function in wanted}
        self._answers: dict[str, list[FunctionAnswer]] = {}

    def answers(self, function: BoundFunction) -> list[FunctionAnswer]:
        """The answer about a function, and of those steps that are nested in it."""
        if function.name not in self._answers:
            self._answers[function.name] = self._answered(function)
        return self._answers[function.name]

    def _answered(self, function: BoundFunction) -> list[FunctionAnswer]:
        reach = self._calls.reach(function.name)
        if reach.refusal:
            return [_not_looked_at(function.name, reach.refusal)]
        if not reach.writes:
            return [FunctionAnswer(function.name, False, _NO_WRITES)]
        by = self._trains_by_call(function.name)
        if by and any(answer.trains for answer in self.answers(self._wanted[by])):
            return [_by_calling(function.name, by)]
        if by:
            return [FunctionAnswer(function.name, False, f"writes by calling {by} alone")]
        return self.guarded(function.name, lambda: view_of_function(self._model, function))

    def of_the_graph(self) -> list[FunctionAnswer]:
        """The answer about the model's own graph, and of those steps that are nested in it."""
        roots = _train_ops(self._model)
        found = self.guarded(GRAPH, lambda: view_of_graph(self._model, roots)) if roots else []
        kept = reference_weights(self._model.graph_def)
        if not kept:
            return found
        if not any(answer.trains or answer.refusal for answer in found):
            return [FunctionAnswer(GRAPH, True, said_of(kept), len(kept))]
        return [_with_note(answer, said_of(kept)) for answer in found]

    def _trains_by_call(self, name: str) -> str:
        """The function on the list that does all of a function's writing; "" where it is itself."""
        if self._calls.writes_itself(name):
            return ""
        writing = {c for c in self._calls.callees[name] if self._calls.reach(c).writes}
        found = writing.pop() if len(writing) == 1 else ""
        return found if found in self._wanted else ""

    def guarded(self, name: str, view_of: Callable[[], FunctionView]) -> list[FunctionAnswer]:
        """The answer about a graph; that it makes no sense where a stage breaks."""
        try:
            return self._looked_at(name, view_of())
        except WuShardError as error:
            return [_not_looked_at(name, str(error))]
        except RecursionError:
            return [_not_looked_at(name, "it is nested too deep")]
        except MemoryError:
            return [_not_looked_at(name, "it needs more memory than there is")]
        # A file may hold any graph, and no check of it is complete.
        except Exception as error:
            return [_not_looked_at(name, f"its graph makes no sense ({type(error).__name__})")]

    def _looked_at(self, name: str, found: FunctionView) -> list[FunctionAnswer]:
        view = found.view
        written = written_variables(view)
        program = grounds.program_in(view)
        refusal = _left_alone(program.refusal) if program and program.refusal else ""
        devices = replica_devices(view) if program is None else ()
        if program is None and not devices:
            refusal = _ONE_FOR_ALL if found.reordered else ""
            if any(op.type in _COLLECTIVES for op in view):
                refusal = _UNTIED
        if refusal:
            return [FunctionAnswer(name, any(written.values()), refusal, len(written))]
        notes = tuple(_notes(found))
        if devices:
            step = FoundStep(
                view, analyze(view, InProcess(in_this_process(devices))), None, len(devices)
            )
            return [described(name, self._model, self._question, step, notes)]
        around, steps = steps_in(view, self._model.functions, program, self._question)
        nested = [
            described(f"{name}/{inner}", self._model, self._question, step, notes)
            for inner, step in steps
        ]
        trained = [answer for answer in nested if _has_updates(answer)]
        own = described(name, self._model, self._question, around, notes)
        if trained and not _has_updates(own):
            own = _by_calling(name, trained[0].name)
        return [own, *trained]


def _has_updates(answer: FunctionAnswer) -> bool:
    return bool(answer.updates or (answer.report and answer.report.left_alone))


def _with_note(answer: FunctionAnswer, note: str) -> FunctionAnswer:
    if answer.report is None:
        return answer
    report = dataclasses.replace(answer.report, notes=(*answer.report.notes, note))
    return dataclasses.replace(answer, report=report)


def _by_calling(name: str, by: str) -> FunctionAnswer:
    return FunctionAnswer(name, True, f"trains by calling {by}", trained_by=by)


def _notes(found: FunctionView) -> Iterator[str]:
    if found.reordered:
        yield (
            f"{len(found.reordered)} variables enter by two handles, as saved_model.save traces"
            " TPU steps: their accesses are taken in the order in which they were traced"
        )
    if found.guessed:
        yield GUESSED


def _left_alone(refusal: Refusal) -> str:
    lifted = f"; lifted by {refusal.cure}" if refusal.cure else ""
    return f"left alone: {refusal.reason}{lifted}"


def _not_looked_at(name: str, refusal: str) -> FunctionAnswer:
    return FunctionAnswer(name, False, f"not looked at: {refusal}", refusal=refusal)
