"""The process that runs a script for `inspect` answers once, whatever the script does."""

from __future__ import annotations

import json
import multiprocessing
import os
import pathlib
import pickle
import sys
import types
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from tf_wu_shard import deferred
from tf_wu_shard.cli import program, traced_script

NO_ANSWER = "no answer"


class LeftError(BaseException):
    """The process would have ended."""


class Process:
    """The process: what its script imports, as which process it goes on, and its answer."""

    def __init__(self, file: pathlib.Path) -> None:
        self.file = file
        self.number = 1
        self.imports: dict[str, Callable[[], None]] = {}
        self.arguments: list[Any] = []
        # What was watched over, in this order.
        self.watched: list[Any] = []
        self.give: Callable[[Any], NoReturn] | None = None
        self.at_the_end: Any = "what was traced by the end"

    @property
    def answer(self) -> Any:
        """What it answered."""
        return pickle.loads(self.file.read_bytes()) if self.file.exists() else NO_ANSWER


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> Process:
    """Without TensorFlow, and without ends of processes."""
    made = Process(tmp_path / "answer")

    def watching(script: str, question: Any, give: Any) -> Any:
        made.watched.append((script, question["function"]))
        made.give = give
        return types.SimpleNamespace(at_the_end=lambda: made.at_the_end)

    def leave() -> NoReturn:
        raise LeftError

    monkeypatch.setattr(deferred, "when_imported", made.imports.__setitem__)
    monkeypatch.setattr(traced_script, "_watching", watching)
    monkeypatch.setattr(
        traced_script, "_watch_keras", lambda package, stop: made.watched.append(package)
    )
    monkeypatch.setattr(traced_script, "_leave", leave)
    monkeypatch.setattr(traced_script, "_keras_backend", lambda: "tensorflow")
    monkeypatch.setattr(os, "getpid", lambda: made.number)
    return made


@pytest.fixture
def run(process: Process, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Runs a script, and returns the answer."""

    def main(script: Callable[[], object], *arguments: str, topology: str | None = None) -> Any:
        def run_script(path: str, given: list[str]) -> None:
            process.arguments = [path, *given]
            script()

        asked = {"replicas": None, "topology": topology, "function": "step", "diff": False}
        words = [str(process.file), json.dumps(asked), "train.py", *arguments]
        monkeypatch.setattr(sys, "argv", ["traced_script", *words])
        monkeypatch.setattr(program, "run_script", run_script)
        assert traced_script.main() == 0
        return process.answer

    return main


def fail(error: BaseException) -> Callable[[], None]:
    def script() -> None:
        raise error

    return script


def test_a_script_gets_its_own_arguments(run: Callable[..., Any], process: Process) -> None:
    run(lambda: None, "--epochs", "3", "--replicas")
    assert process.arguments == ["train.py", "--epochs", "3", "--replicas"]


def test_a_script_that_imports_no_tensorflow_has_traced_nothing(run: Callable[..., Any]) -> None:
    assert run(lambda: None) is None


def test_a_script_that_ends_answers_with_what_was_traced_by_then(
    run: Callable[..., Any], process: Process
) -> None:
    assert run(lambda: process.imports["tensorflow"]()) == "what was traced by the end"
    assert process.watched == [("train.py", "step")]


@pytest.mark.parametrize("status", [None, 0])
def test_a_script_that_exits_as_others_end_is_one_that_ended(
    run: Callable[..., Any], process: Process, status: int | None
) -> None:
    def script() -> None:
        process.imports["tensorflow"]()
        raise SystemExit(status)

    assert run(script) == "what was traced by the end"


def test_another_status_is_told(run: Callable[..., Any]) -> None:
    said = "train.py ended with status 3 before it trained"
    assert run(fail(SystemExit(3))) == said


def test_what_a_script_raises_is_told(run: Callable[..., Any]) -> None:
    assert run(fail(ValueError("no data"))) == "train.py raised ValueError: no data"
    # The answer that was there first stays.
    assert run(fail(KeyError("later"))) == "train.py raised ValueError: no data"


def test_an_interrupt_is_told_too(run: Callable[..., Any]) -> None:
    assert run(fail(KeyboardInterrupt())) == "train.py raised KeyboardInterrupt"


def raise_in(module: str) -> Callable[[], None]:
    """A script that fails inside of a module of that name."""
    names: dict[str, Any] = {"__name__": module}
    exec("def find(): raise RuntimeError('nothing found')", names)
    find: Callable[[], None] = names["find"]
    return find


@pytest.mark.parametrize(
    ("module", "is_told"),
    [
        ("tensorflow.python.tpu", True),
        ("tensorflow.python.tpu.tpu_system", True),
        ("tensorflow.python.distribute.cluster_resolver.tpu.resolver", True),
        ("tensorflow.python.tpu_other", False),
        ("a_script", False),
    ],
)
def test_who_looks_for_a_tpu_is_told_how_to_find_one(
    run: Callable[..., Any], module: str, is_told: bool
) -> None:
    said = run(raise_in(module))
    assert said.startswith("train.py raised RuntimeError: nothing found")
    assert said.endswith("--topology NAME, such as v5e:2x4, lets it find one") == is_told


@pytest.mark.parametrize(("text", "is_told"), [("no TPU has it", True), ("no data", False)])
def test_on_a_tpu_that_a_topology_stands_for_nothing_runs(
    run: Callable[..., Any], text: str, is_told: bool
) -> None:
    said = run(fail(RuntimeError(text)), topology="v5e:2x4")
    assert said.startswith(f"train.py raised RuntimeError: {text}")
    assert ("--topology v5e:2x4 stands for nothing runs" in said) == is_told


def test_without_one_nobody_is_told_what_it_stands_for(run: Callable[..., Any]) -> None:
    assert run(fail(RuntimeError("no TPU"))) == "train.py raised RuntimeError: no TPU"


def test_with_a_topology_nobody_is_told_to_name_one(run: Callable[..., Any]) -> None:
    said = run(raise_in("tensorflow.python.tpu.tpu_system"), topology="v5e:2x4")
    assert said == "train.py raised RuntimeError: nothing found"


def test_a_keras_that_tensorflow_imports_is_watched_once_that_is_whole(
    run: Callable[..., Any], process: Process
) -> None:
    def script() -> None:
        process.imports["keras"]()
        assert process.watched == []
        process.imports["tensorflow"]()
        process.imports["tf_keras"]()

    run(script)
    assert process.watched == [("train.py", "step"), "keras", "tf_keras"]


def test_keras_on_another_backend_would_train_to_its_end(
    run: Callable[..., Any], process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traced_script, "_keras_backend", lambda: "jax")
    after: list[str] = []

    def script() -> None:
        process.imports["tf_keras"]()
        after.append("tf_keras")
        process.imports["keras"]()
        after.append("keras")

    said = "train.py uses Keras on jax: there is no graph of TensorFlow's"
    assert run(script) == said
    # That of tf_keras is always TensorFlow.
    assert after == ["tf_keras"]


def test_what_is_given_in_the_midst_of_a_script_is_the_answer(
    run: Callable[..., Any], process: Process
) -> None:
    def script() -> None:
        process.imports["tensorflow"]()
        assert process.give is not None
        process.give({"plan": 1})

    assert run(script) == {"plan": 1}


def test_what_a_script_forked_ends_in_its_own_way_and_answers_nothing(
    run: Callable[..., Any], process: Process
) -> None:
    def forked(error: BaseException | None) -> Callable[[], None]:
        def script() -> None:
            process.number = 2
            if error is not None:
                raise error

        return script

    for error in (SystemExit(3), SystemExit(0), ValueError("no data"), KeyboardInterrupt()):
        process.number = 1
        with pytest.raises(type(error)):
            run(forked(error))
    process.number = 1
    assert run(forked(None)) == NO_ANSWER


def test_what_a_script_forked_answers_where_it_trains(
    run: Callable[..., Any], process: Process
) -> None:
    def script() -> None:
        process.imports["tensorflow"]()
        process.number = 2
        assert process.give is not None
        process.give("of the second process")

    with pytest.raises(LeftError):
        run(script)
    assert process.answer == "of the second process"
    # Nothing but the answer is left of how it was written.
    assert [*process.file.parent.iterdir()] == [process.file]


def test_an_answer_that_cannot_be_sent_is_told(run: Callable[..., Any], process: Process) -> None:
    process.at_the_end = lambda: "a function of the process"
    assert run(lambda: process.imports["tensorflow"]()).startswith(
        "the answer cannot be handed over: "
    )


@pytest.mark.parametrize("is_closed", [False, True])
def test_who_leaves_ends_what_feeds_it_and_then_itself(
    monkeypatch: pytest.MonkeyPatch, is_closed: bool
) -> None:
    done: list[object] = []

    def end(status: int) -> NoReturn:
        done.append(status)
        raise LeftError

    def flush() -> None:
        done.append("flushed")
        if is_closed:
            raise ValueError("the script has closed it")

    child = types.SimpleNamespace(terminate=lambda: done.append("a child was ended"))
    monkeypatch.setattr(multiprocessing, "active_children", lambda: [child])
    monkeypatch.setattr(sys, "stdout", types.SimpleNamespace(flush=flush))
    monkeypatch.setattr(sys, "stderr", types.SimpleNamespace(flush=lambda: None))
    monkeypatch.setattr(os, "_exit", end)
    with pytest.raises(LeftError):
        traced_script._leave()
    assert done == ["a child was ended", "flushed", 0]
