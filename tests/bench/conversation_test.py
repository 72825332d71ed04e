"""Commands go in and answers come out, one each; failures reach the parent in words."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from tf_wu_shard.bench.conversation import Worker, WorkerError
from tf_wu_shard.errors import OptionError

SERVE = """
import sys
from tf_wu_shard.bench import conversation
from tf_wu_shard.errors import OptionError

def double(number):
    print("noise on standard output")
    return 2 * number

def impossible():
    raise OptionError("no such thing; choose another")

def fail():
    raise ValueError("broken")

def learn(word):
    answers["say"] = lambda: word

answers = {"double": double, "impossible": impossible, "break": fail, "learn": learn}
sys.exit(conversation.serve(answers))
"""


@pytest.fixture
def worker() -> Iterator[Worker]:
    with Worker("echo", [sys.executable, "-c", SERVE]) as started:
        yield started


def test_an_answer_is_the_value_whatever_else_is_printed(worker: Worker) -> None:
    assert worker.ask("double", number=21) == 42
    assert worker.ask("double", number=1.5) == 3.0


def test_what_a_command_makes_can_be_asked_for_later(worker: Worker) -> None:
    worker.ask("learn", word="so it is")
    assert worker.ask("say") == "so it is"


def test_an_impossible_request_is_the_users_error(worker: Worker) -> None:
    with pytest.raises(OptionError, match=r"^no such thing; choose another$"):
        worker.ask("impossible")


def test_a_failed_command_says_whose_it_was_and_why(worker: Worker) -> None:
    with pytest.raises(WorkerError, match=r"^echo: break failed: ValueError: broken$"):
        worker.ask("break")


def test_a_dead_process_leaves_its_status_and_its_last_words() -> None:
    die = "import sys; sys.stdin.readline(); sys.exit('out of memory')"
    with (
        Worker("fragile", [sys.executable, "-c", die]) as dying,
        pytest.raises(WorkerError, match=r"(?s)fragile: .* status 1 at 'step'.*out of memory"),
    ):
        dying.ask("step")


def test_killing_a_process_ends_the_wait_for_its_answer() -> None:
    with Worker("busy", [sys.executable, "-c", "while True: pass"]) as busy:
        threading.Timer(0.1, busy.kill).start()
        with pytest.raises(WorkerError, match="status -9 at 'step'"):
            busy.ask("step")


def test_closing_ends_a_process_that_is_at_work() -> None:
    busy = Worker("busy", [sys.executable, "-c", "while True: pass"])
    busy.close()
    assert busy._process.returncode is not None and busy._process.returncode < 0
