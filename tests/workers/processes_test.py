"""Workers get one cluster and an index each, say what they write, and never outlive their test."""

from __future__ import annotations

import pathlib
import signal

import pytest

from tests.workers.processes import Worker, completed, launch, running

# As long as anything here may take on a busy machine; nothing waits that long.
_PATIENCE = 60.0


@pytest.fixture
def script(tmp_path: pathlib.Path) -> pathlib.Path:
    """A program that does what its arguments say; without any, it prints the cluster."""
    file = tmp_path / "program.py"
    file.write_text(
        "import json, os, sys, time\n"
        "task = json.loads(os.environ['TF_CONFIG'])\n"
        "index, words = task['task']['index'], sys.argv[1:]\n"
        "if 'count' in words:\n"
        "    for number in range(10**6):\n"
        "        print(f'at {number}')\n"
        "        time.sleep(0.01)\n"
        "if 'fail' in words and index == 1:\n"
        "    sys.exit('something broke')\n"
        "if 'hang' in words and index == 0:\n"
        "    print('waits', flush=True)\n"
        "    time.sleep(10**6)\n"
        "print('some words before')\n"
        "print(json.dumps([task, words, os.environ.get('GIVEN')]))\n"
    )
    return file


def test_workers_share_a_cluster_and_have_an_index_each(script: pathlib.Path) -> None:
    environment = {"GIVEN": "something"}
    done = launch(script, ["a", "b c"], 3, seconds=_PATIENCE, environment=environment)
    answers = [worker.answer for worker in done]
    addresses = answers[0][0]["cluster"]["worker"]
    assert len(set(addresses)) == 3
    assert answers == [
        [
            {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}},
            ["a", "b c"],
            "something",
        ]
        for index in range(3)
    ]


def test_a_module_is_found_from_any_folder(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (worker,) = launch("tests.pytest_main", ["--version"], 1, seconds=_PATIENCE)
    assert worker.returncode == 0
    assert "pytest" in worker.output + worker.errors


def test_a_worker_that_failed_is_returned_and_shows_what_it_wrote(script: pathlib.Path) -> None:
    whole, failed = launch(script, ["fail"], seconds=_PATIENCE)
    assert whole.answer[1] == ["fail"]
    assert failed.returncode == 1
    with pytest.raises(AssertionError, match=r"worker 1 ended with 1(.|\n)*something broke"):
        _ = failed.answer


def test_workers_that_hang_are_killed_and_all_show_what_they_wrote(script: pathlib.Path) -> None:
    with running(script, ["fail", "hang"]) as workers:
        workers[0].line("waits", _PATIENCE)
        workers[1].process.wait(_PATIENCE)
        with pytest.raises(AssertionError) as raised:
            completed(workers, seconds=0.1)
    for said in ("not all workers have ended (0: runs, 1: 1)", "waits", "something broke"):
        assert said in str(raised.value)
    assert [worker.process.returncode for worker in workers] == [-signal.SIGKILL, 1]


def test_a_worker_is_killed_in_the_midst(script: pathlib.Path) -> None:
    with running(script, ["count"]) as workers:
        assert workers[0].line("at 3", _PATIENCE) == "at 3"
        workers[0].kill()
        (killed,) = completed(workers[:1], _PATIENCE)
        assert workers[1].runs
    assert killed.returncode == -signal.SIGKILL


def test_a_stopped_worker_says_nothing_until_it_goes_on(script: pathlib.Path) -> None:
    with running(script, ["count"], workers=1) as (worker,):
        worker.line("at 3", _PATIENCE)
        worker.stop()
        later = f"at {_reached(worker) + 5}"
        with pytest.raises(AssertionError, match=f"took more than 0.3 s for a line with '{later}'"):
            worker.line(later, seconds=0.3)
        assert worker.runs
        worker.go_on()
        worker.line(later, _PATIENCE)


def test_a_line_that_never_comes_is_an_error_as_soon_as_the_worker_ends(
    script: pathlib.Path,
) -> None:
    with (
        running(script, workers=1) as (worker,),
        pytest.raises(AssertionError, match="ended without a line with 'never'"),
    ):
        worker.line("never", _PATIENCE)


def _reached(worker: Worker) -> int:
    return int(worker.output.read_text().splitlines()[-1].removeprefix("at "))
