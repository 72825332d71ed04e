"""`wu-shard run --workers` runs a script in a cluster on this machine, and ends all of it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from tests.cli.command import wu_shard
from tests.project.imports import ROOT
from tf_wu_shard.cli.local_workers import ClusterEnd, Patience, run_workers

# Every script knows its worker's index and its cluster, and can say that it got so far. As long as
# it runs, or what it hands the descriptor to, the file by which it says so is locked.
HEAD = """\
import fcntl, json, os, signal, subprocess, sys, time
cluster = json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"]
index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
mark = open(f"{index}.new", "w")
fcntl.flock(mark, fcntl.LOCK_EX)
def ready(process=os.getpid()):
    print(process, file=mark, flush=True)
    os.replace(f"{index}.new", f"{index}.ready")
def wait_for(other):
    while not os.path.exists(f"{other}.ready"):
        time.sleep(0.01)
"""

# Long for a test, short for who waits for it to end.
SLEEP = "time.sleep(60)\n"

HASTE = Patience(own_end=0.2, stop=0.2, output=0.2)

Run = Callable[..., ClusterEnd]


@pytest.fixture
def run(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs lines of Python in a number of workers, in a folder of the test's own."""
    monkeypatch.chdir(tmp_path)

    def run(count: int, lines: str, patience: Patience = HASTE) -> ClusterEnd:
        pathlib.Path("script.py").write_text(HEAD + lines)
        return run_workers(count, {"script": ["script.py"]}, reports=False, patience=patience)

    return run


RUN = ("run", "--workers", "2", "script.py")


@pytest.fixture
def starting(tmp_path: pathlib.Path) -> Callable[..., subprocess.Popen[bytes]]:
    """Starts `wu-shard run --workers 2` and returns when both workers are ready."""

    def start(lines: str) -> subprocess.Popen[bytes]:
        (tmp_path / "script.py").write_text(HEAD + lines)
        with _signals_as_in_a_terminal():
            started = subprocess.Popen(
                [sys.executable, "-m", "tf_wu_shard.cli.main", *RUN],
                cwd=tmp_path,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        _wait_until(lambda: len([*tmp_path.glob("*.ready")]) == 2)
        return started

    return start


@contextlib.contextmanager
def _signals_as_in_a_terminal() -> Iterator[None]:
    """What is started meanwhile ignores none, as it would where nohup started the tests."""
    asking = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, signal.SIG_DFL) for number in asking}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait_until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.02)


def _all_gone(folder: pathlib.Path) -> bool:
    return not any(_is_locked(file) for file in folder.glob("*.ready"))


def _is_locked(file: pathlib.Path) -> bool:
    with file.open() as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_every_worker_runs_the_script_as_one_process_would(tmp_path: pathlib.Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner/look.py").write_text(
        HEAD + "import beside\n"
        "print(json.dumps([index, cluster, sys.argv, os.getcwd(), __name__, sys.stdin.read()]))\n"
    )
    (tmp_path / "inner/beside.py").touch()
    done = wu_shard("run", "--workers", "3", "inner/look.py", "--own", "-m", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = sorted(re.findall(r"^\[worker (\d)\] (.*)$", done.stdout, re.MULTILINE))
    assert [prefix for prefix, _ in said] == ["0", "1", "2"]
    found = [json.loads(line) for _, line in said]
    cluster = found[0][1]
    assert len(set(cluster)) == 3
    assert all(re.fullmatch(r"127\.0\.0\.1:\d+", address) for address in cluster)
    argv = ["inner/look.py", "--own", "-m"]
    assert found == [[index, cluster, argv, str(tmp_path), "__main__", ""] for index in range(3)]


def test_a_module_is_run_in_one_worker_too(tmp_path: pathlib.Path) -> None:
    (tmp_path / "look.py").write_text(HEAD + "print(index, len(cluster), sys.argv[1:])\n")
    done = wu_shard("run", "--workers", "1", "-m", "look", "--own", cwd=tmp_path)
    assert done.stdout == "[worker 0] 0 1 ['--own']\n"
    assert done.stderr.startswith("wu-shard: 1 worker: warning: nothing was sharded: the script")


def test_lines_of_workers_are_joined_whole(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    end = run(
        3,
        "for line in range(500):\n"
        "    for piece in (f'{line}:', 'x' * 300, '\\n'):\n"
        "        for stream in (sys.stdout, sys.stderr):\n"
        "            stream.write(piece)\n"
        "            stream.flush()\n",
    )
    assert end.status == 0
    for text in capfd.readouterr():
        lines = text.splitlines()
        assert len(lines) == 1500
        for worker in range(3):
            own = [line for line in lines if line.startswith(f"[worker {worker}] ")]
            assert own == [f"[worker {worker}] {line}:{'x' * 300}" for line in range(500)]


def test_no_output_is_lost_or_decoded(run: Run, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    end = run(
        1,
        "print('before')\n"
        "sys.stdout.buffer.write(b'\\xff 10 %\\r\\xff 20 %')\n"
        "sys.stdout.flush()\n"
        "print('part', end='', file=sys.stderr)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n",
    )
    assert end.status == 128 + signal.SIGKILL
    out, err = capfdbinary.readouterr()
    assert out == b"[worker 0] before\n[worker 0] \xff 20 %\n"
    assert err == b"[worker 0] part\nwu-shard: worker 0 was ended by SIGKILL.\n"


def test_what_a_worker_prints_is_seen_while_it_runs(
    starting: Callable[..., subprocess.Popen[bytes]],
) -> None:
    with starting(f"print('line')\nready()\n{SLEEP}") as started:
        assert started.stdout is not None
        seen = {started.stdout.readline(), started.stdout.readline()}
        started.terminate()
    assert seen == {b"[worker 0] line\n", b"[worker 1] line\n"}


def test_the_others_are_stopped_when_one_fails(
    run: Run, capfd: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    end = run(
        3,
        "signal.signal(signal.SIGTERM, lambda *_: print('noted'))\n"
        "ready()\n"
        "wait_for(0), wait_for(2)\n"
        "if index == 1: sys.exit(7)\n" + SLEEP,
        Patience(own_end=0.2, stop=1.0),
    )
    assert end.status == 7
    assert [worker.status for worker in end.workers] == [-signal.SIGKILL, 7, -signal.SIGKILL]
    assert [worker.stopped for worker in end.workers] == [True, False, True]
    assert _all_gone(tmp_path)
    out, err = capfd.readouterr()
    assert sorted(out.splitlines()) == ["[worker 0] noted", "[worker 2] noted"]
    assert err.splitlines() == [
        "wu-shard: worker 1 ended with status 7; workers 0, 2 will be stopped in 0.2 s.",
        "wu-shard: stopping workers 0, 2.",
    ]


def test_the_others_may_end_by_an_error_of_their_own(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    end = run(
        2,
        "if index == 1:\n    ready()\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        "wait_for(1)\ntime.sleep(1)\nsys.exit('worker 1 is gone')\n",
        Patience(own_end=20),
    )
    assert end.status == 128 + signal.SIGKILL
    assert [worker.status for worker in end.workers] == [1, -signal.SIGKILL]
    first, *others = capfd.readouterr().err.splitlines()
    assert first == "wu-shard: worker 1 was ended by SIGKILL; worker 0 will be stopped in 20 s."
    assert others == ["[worker 0] worker 1 is gone", "wu-shard: worker 0 ended with status 1."]


def test_a_worker_that_ends_well_stops_nobody(run: Run) -> None:
    end = run(2, "if index == 0: ready()\nelse: wait_for(0), time.sleep(0.8)\n")
    assert [(worker.status, worker.stopped) for worker in end.workers] == [(0, False)] * 2


def test_what_a_worker_started_is_stopped_with_it(run: Run, tmp_path: pathlib.Path) -> None:
    run(
        2,
        "if index == 0:\n"
        "    ready(subprocess.Popen(['sleep', '60'], pass_fds=[mark.fileno()]).pid)\n"
        f"    {SLEEP}"
        "wait_for(0)\nsys.exit(1)\n",
    )
    _wait_until(lambda: _all_gone(tmp_path))


def test_what_a_worker_leaves_running_holds_up_nothing(run: Run, tmp_path: pathlib.Path) -> None:
    began = time.monotonic()
    assert run(1, "ready(subprocess.Popen(['sleep', '60']).pid)\n").status == 0
    assert time.monotonic() - began < 20
    os.kill(int((tmp_path / "0.ready").read_text()), signal.SIGKILL)


def test_a_port_that_somebody_took_is_told(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    end = run(
        2,
        "import socket\n"
        "port = int(cluster[1].partition(':')[2])\n"
        "if index == 0:\n"
        "    taker = socket.create_server(('127.0.0.1', port))\n"
        "    ready()\n"
        f"    {SLEEP}"
        "wait_for(0)\n"
        "try: socket.create_server(('127.0.0.1', port))\n"
        "except OSError: sys.exit(1)\n",
    )
    assert end.status == 1
    told = r"worker 1 ended with status 1; another process has taken its port, \d+: run it again"
    assert re.search(told, capfd.readouterr().err)


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
)
def test_a_signal_to_the_launcher_stops_all_workers(
    starting: Callable[..., subprocess.Popen[bytes]],
    tmp_path: pathlib.Path,
    number: signal.Signals,
    status: int,
) -> None:
    started = starting(
        f"ready()\ntry:\n    {SLEEP}except KeyboardInterrupt:\n    print('saved')\n    raise\n"
    )
    started.send_signal(number)
    out, _ = started.communicate(timeout=30)
    assert started.returncode == status
    assert f"wu-shard: {number.name}: stopping workers 0, 1.\n".encode() in out
    assert out.count(b"saved\n") == (2 if number == signal.SIGINT else 0)
    assert _all_gone(tmp_path)


def test_a_script_that_takes_a_signal_well_keeps_its_status(
    starting: Callable[..., subprocess.Popen[bytes]],
) -> None:
    started = starting(f"signal.signal(signal.SIGTERM, lambda *_: sys.exit())\nready()\n{SLEEP}")
    started.terminate()
    started.communicate(timeout=30)
    assert started.returncode == 0


def test_a_second_signal_waits_for_nobody(
    starting: Callable[..., subprocess.Popen[bytes]], tmp_path: pathlib.Path
) -> None:
    started = starting(f"signal.signal(signal.SIGINT, lambda *_: print('no'))\nready()\n{SLEEP}")
    assert started.stdout is not None
    began = time.monotonic()
    started.send_signal(signal.SIGINT)
    # At its end it reads nothing more, and the test fails instead of waiting for ever.
    lines = iter(started.stdout.readline, b"")
    assert any(b"no\n" in line for line in lines)
    started.send_signal(signal.SIGINT)
    started.communicate(timeout=30)
    assert started.returncode == 130
    assert time.monotonic() - began < Patience().stop
    assert _all_gone(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's help is Linux's")
def test_workers_end_with_a_launcher_that_is_killed(
    starting: Callable[..., subprocess.Popen[bytes]], tmp_path: pathlib.Path
) -> None:
    started = starting(f"signal.signal(signal.SIGTERM, signal.SIG_IGN)\nready()\n{SLEEP}")
    started.kill()
    started.communicate()
    _wait_until(lambda: _all_gone(tmp_path))


def test_a_reader_that_goes_away_ends_the_workers_as_it_ends_one_process(
    starting: Callable[..., subprocess.Popen[bytes]],
) -> None:
    started = starting("ready()\nwhile True: print('x' * 1000)\n")
    assert started.stdout is not None
    started.stdout.readline()
    started.stdout.close()
    assert started.wait(timeout=30) != 0


def test_a_run_that_sharded_nothing_fails_without_stopping_a_worker(
    tmp_path: pathlib.Path,
) -> None:
    (tmp_path / "none.py").write_text(
        HEAD + "if index == 0: ready()\nelse: wait_for(0), time.sleep(0.5), print('saved')\n"
    )
    done = wu_shard("run", "--workers", "2", "--on-refusal", "raise", "none.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "[worker 1] saved\n")
    assert done.stderr == (
        "wu-shard: 2 workers: error: nothing was sharded: the script never imported TensorFlow.\n"
    )


def test_workers_that_say_something_else_are_told_apart(tmp_path: pathlib.Path) -> None:
    (tmp_path / "some.py").write_text(HEAD + "if index == 1: os._exit(0)\n")
    done = wu_shard("run", "--workers", "2", "--report", "r.json", "some.py", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        "wu-shard: worker 0: warning: nothing was sharded: the script never imported TensorFlow.",
        "wu-shard: worker 1: no verdict: the process ended with status 0.",
    ]
    assert json.loads((tmp_path / "r.json").read_text()) == []


def test_the_report_has_what_workers_report_alike_once(tmp_path: pathlib.Path) -> None:
    (tmp_path / "none.py").write_text("import os; os.chdir('/')\n")
    options = ("--workers", "2", "--unsharded", "--report", "r.json")
    done = wu_shard("run", *options, "none.py", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (report,) = json.loads((tmp_path / "r.json").read_text())
    assert report["workers"] == [0, 1] and report["verdict"] == "nothing sharded"


@pytest.mark.parametrize(
    ("arguments", "cluster", "message"),
    [
        (("--workers", "0"), "", "--workers needs at least 1 worker, not 0"),
        (("--workers", "two"), "", "argument --workers: invalid int value: 'two'"),
        (("--workers", "2", "--emulate-tpu", "2"), "", "leave out the one or the other"),
        (("--workers", "2", "--topology", "v5e:2x2"), "", "leave out the one or the other"),
        (("--workers", "2", "--min-elements", "0"), "", "min_elements"),
        (("--workers", "2"), '{"cluster": {}}', "leave out --workers, or unset TF_CONFIG"),
    ],
)
def test_wrong_usage_is_told_once_and_before_any_worker_runs(
    arguments: tuple[str, ...],
    cluster: str,
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tf_wu_shard.cli.main import main

    monkeypatch.setenv("TF_CONFIG", cluster)
    with pytest.raises(SystemExit) as stop:
        main(["run", *arguments, __file__])
    assert stop.value.code == 2
    out, err = capsys.readouterr()
    assert message in err and err.count("\n") == 1 and not out


REDUCE = """\
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
@tf.function
def total():
    def replica():
        index = tf.distribute.get_replica_context().replica_id_in_sync_group
        return tf.distribute.get_replica_context().all_reduce("sum", tf.cast(index + 1, tf.float32))
    return strategy.run(replica)
print(strategy.num_replicas_in_sync, float(total()))
"""


@pytest.mark.slow
def test_workers_reduce_a_number_over_the_cluster(tmp_path: pathlib.Path) -> None:
    (tmp_path / "reduce.py").write_text(REDUCE)
    done = wu_shard("run", "--workers", "2", "reduce.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert sorted(done.stdout.splitlines()) == ["[worker 0] 2 3.0", "[worker 1] 2 3.0"]
    assert "wu-shard: 2 workers: warning: nothing was sharded: no function" in done.stderr
