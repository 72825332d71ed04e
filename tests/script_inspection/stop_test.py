"""What is handed over where a script is stopped, also where it cannot be looked at."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest
import tensorflow as tf

from tests.model_files.exported import Step
from tf_wu_shard.errors import OptionError
from tf_wu_shard.inspection.answers.answer import Inspection
from tf_wu_shard.inspection.steps.grounds import Question
from tf_wu_shard.script_inspection import replicated_step, stop
from tf_wu_shard.script_inspection.stop import Stop
from tf_wu_shard.tensorflow_private import step_stop, traced_graphs

_FIRST = tf.VariableAggregation.ONLY_FIRST_REPLICA


class _LeftError(Exception):
    """Stands for the end of the process."""


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was handed over; this process is not watched but shown to the object under test."""
    for owner, name in (
        (traced_graphs, "replace"),
        *((step_stop, f"before_{what}") for what in ("calls", "eager_gradients", "eager_updates")),
        (step_stop, "before_session_runs"),
    ):
        monkeypatch.setattr(owner, name, lambda *_: None)
    # Functions of other tests are alive in this process too.
    monkeypatch.setattr(step_stop, "concrete_functions", lambda: [])
    return []


def stopped(given: list[Any], about_to_run: Any, **asked: Any) -> Any:
    """The answer to a script that is about to run a function."""

    def give(said: Any) -> NoReturn:
        given.append(said)
        raise _LeftError

    watching = Stop(__file__, Question(**asked), give)
    watching._see(about_to_run.graph, 0.0)
    with pytest.raises(_LeftError):
        watching._before_call(about_to_run)
    (answer,) = given
    return answer


@pytest.fixture(scope="module")
def module() -> Step:
    return Step("adam")


@pytest.fixture
def train(module: Step) -> Any:
    return module.train.get_concrete_function()


def test_a_step_is_told_with_the_line_that_would_run_it(given: list[Any], train: Any) -> None:
    answer = stopped(given, train)
    assert isinstance(answer, Inspection) and answer.verdict == "1 function trains"
    assert answer.how.startswith(f"{__file__}, line ") and not answer.notes


def test_a_function_is_chosen_by_name(given: list[Any], train: Any) -> None:
    assert isinstance(stopped(given, train, function="train"), Inspection)
    given.clear()
    assert isinstance(stopped(given, train, function="absent"), OptionError)


def test_what_trains_nothing_goes_on(given: list[Any], module: Step) -> None:
    watching = Stop(__file__, Question(), given.append)  # type: ignore[arg-type]
    watching._before_call(module.predict.get_concrete_function())
    assert not given
    answer = watching.at_the_end()
    assert isinstance(answer, Inspection) and not answer.functions


def test_a_step_that_cannot_be_read_is_told_as_unread(
    given: list[Any], train: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> NoReturn:
        raise KeyError("a stage")

    monkeypatch.setattr(replicated_step, "replicated_step", fails)
    answer = stopped(given, train)
    (found,) = answer.functions
    assert found.verdict == "not looked at: 'a stage'" and answer.notes == ("train: 'a stage'",)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RecursionError])
def test_nothing_passes_through_the_script(
    error: type[BaseException], given: list[Any], train: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> NoReturn:
        raise error

    monkeypatch.setattr(stop, "inspect", fails)
    said = stopped(given, train)
    assert said.endswith(f"train cannot be looked at: {error.__name__}")


def test_replicas_that_sum_nothing_are_not_taken_for_one_device(given: list[Any]) -> None:
    devices = [device.name for device in tf.config.list_logical_devices("CPU")[:2]]
    strategy = tf.distribute.MirroredStrategy(devices)
    with strategy.scope():
        weight = tf.Variable(
            tf.zeros((8, 8)), aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA
        )

    @tf.function
    def step(x: Any) -> None:
        weight.assign_sub(tf.matmul(x, weight))

    answer = stopped(given, step.get_concrete_function(tf.zeros((8, 8))))
    (found,) = answer.functions
    assert "on several replicas and sums no gradient" in found.verdict
