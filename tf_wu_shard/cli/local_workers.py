"""A cluster on one machine: N processes of one script, each a worker with its own TF_CONFIG.

Answers: how the workers are started, how their output becomes one, and how all of them end when
one fails or this process is told to. A worker has this process's environment, working directory
and arguments, and nothing to read on standard input; options of the interpreter, such as `-X`, are
not passed on.

It does not promise that a port stays free until TensorFlow opens it, nor that a process which a
worker started ends with a worker that was not stopped. When this process itself is ended by
SIGKILL, workers end with it on Linux only, and what they started nowhere.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import math
import os
import pathlib
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import IO, Any

import tf_wu_shard
from tf_wu_shard import cluster_addresses
from tf_wu_shard.cli.ended import ended_text
from tf_wu_shard.cli.prefixed_lines import PrefixedLines
from tf_wu_shard.cli.worker_ends import WorkerEnd, named

# The process is to find this package where this one has it, after all that the script may import.
_START = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from tf_wu_shard.cli import worker_process
sys.path.append(sys.path.pop(0))
sys.exit(worker_process.main())
"""

_POLL_S = 0.1

# As much of a stream as is taken at once, so that no worker's output waits long for another's.
_CHUNK_BYTES = 1 << 16

# What asks this process to end, as far as the system has it; a terminal that closes sends SIGHUP.
_ASKING_TO_END = tuple(s for s in signal.Signals if s.name in ("SIGHUP", "SIGINT", "SIGTERM"))


@dataclasses.dataclass(frozen=True)
class Patience:
    """How long workers are waited for, in seconds.

    Attributes:
        own_end: For the others to end by themselves after one failed. TensorFlow notices a worker
            that is gone within about 5 s, and each script then has an error of its own to show.
        stop: From telling a worker to stop until it is killed. Under MultiWorkerMirroredStrategy
            TensorFlow takes SIGTERM for a notice and goes on.
        output: For the end of a worker's output after its process ended: a process that it started
            may hold the other end of the pipe.
    """

    own_end: float = 10.0
    stop: float = 5.0
    output: float = 0.5


@dataclasses.dataclass(frozen=True)
class ClusterEnd:
    """How a local cluster ended.

    Attributes:
        status: The exit status for the whole: that of the first worker that failed, 128 and the
            signal's number for one that was ended by a signal, or for this process where it was
            told to end; else 1 if a worker's verdict makes its run a failed one; else 0.
        workers: How each worker ended, in their order; none that was never started.
    """

    status: int
    workers: tuple[WorkerEnd, ...]


def run_workers(
    count: int, options: Mapping[str, Any], *, reports: bool, patience: Patience | None = None
) -> ClusterEnd:
    """Runs a script in every worker of a local cluster, until all of them ended.

    Lines of the workers go to this process's standard output and error, each with its worker's
    index in front. Call it in the main thread: signals are taken there, and on Linux a worker ends
    with the thread that started it.

    Args:
        count: Number of workers.
        options: What `wu-shard run` parsed for each of them, as JSON can hold it.
        reports: Whether to gather the workers' reports.
        patience: How long to wait for workers that are to end; None for the usual.

    Returns:
        How they ended; with status 1 and fewer workers where one could not be started.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    # What a worker left running may still write there.
    with (
        tempfile.TemporaryDirectory(prefix="wu_shard_", ignore_cleanup_errors=True) as name,
        _noted_signals() as signals,
    ):
        folder = pathlib.Path(name)
        cluster = _Cluster(patience or Patience())
        try:
            started = cluster.start(count, options, folder, reports=reports)
            if started:
                cluster.watch(signals)
        finally:
            cluster.kill()
        ends = tuple(worker.end(folder) for worker in cluster.workers)
    if not started:
        return ClusterEnd(1, ends)
    return ClusterEnd(_status(cluster.first_failed, signals, ends), ends)


def _status(failed: int | None, signals: list[int], ends: tuple[WorkerEnd, ...]) -> int:
    if failed is not None:
        return failed if failed > 0 else 128 - failed
    # Scripts may take a signal for a wish to save and end well.
    if signals and any(end.status for end in ends):
        return 128 + signals[0]
    return 1 if any(end.refused for end in ends) else 0


@contextlib.contextmanager
def _noted_signals() -> Iterator[list[int]]:
    """Notes what asks this process to end instead of ending it; what is ignored stays ignored."""
    noted: list[int] = []
    before: dict[signal.Signals, Any] = {}
    for number in _ASKING_TO_END:
        if signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, lambda received, _: noted.append(received))
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclasses.dataclass(eq=False)
class _Stream:
    """One output of a worker, and the descriptor that its lines go to."""

    pipe: IO[bytes]
    lines: PrefixedLines
    to: int


@dataclasses.dataclass(eq=False)
class _Worker:
    """A worker's process and what is known of its end."""

    index: int
    port: int
    process: subprocess.Popen[bytes]
    streams: tuple[_Stream, ...]
    stopped: bool = False
    ended_at: float = math.inf

    def send(self, number: int) -> None:
        """Signals the worker and what it started, if it has not ended."""
        if self.process.poll() is None:
            self.stopped = True
            # It may have ended since.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, number)

    def end(self, folder: pathlib.Path) -> WorkerEnd:
        """How it ended, and what it left in the folder of all."""
        told = _read_json(_told(folder, self.index)) or {"verdict": None, "refused": False}
        return WorkerEnd(
            index=self.index,
            status=self.process.wait(),
            stopped=self.stopped,
            verdict=told["verdict"],
            refused=told["refused"],
            reports=tuple(_read_json(_reports(folder, self.index)) or ()),
        )


class _Cluster:
    """The workers of one cluster, from their start to their end."""

    def __init__(self, patience: Patience) -> None:
        self.workers: list[_Worker] = []
        # The return code of the worker that failed first, and by itself.
        self.first_failed: int | None = None
        self._patience = patience
        self._running: list[_Worker] = []
        self._selector = selectors.DefaultSelector()
        self._stop_at = math.inf
        self._kill_at = math.inf

    def start(
        self, count: int, options: Mapping[str, Any], folder: pathlib.Path, *, reports: bool
    ) -> bool:
        """Starts all workers; returns False, and says why, where one cannot be started."""
        here = pathlib.Path(tf_wu_shard.__file__).parents[1]
        # Whether the script's folder is looked into for modules is not the worker's to decide.
        flags = ["-P"] if sys.flags.safe_path else []
        try:
            # Held no longer than this, for systems where nobody may listen at a port that is held.
            with cluster_addresses.held_ports(count) as ports:
                pass
            for index, port in enumerate(ports):
                asked = {
                    "starter": os.getpid(),
                    "options": dict(options),
                    "told": str(_told(folder, index)),
                    "report": str(_reports(folder, index)) if reports else None,
                }
                process = subprocess.Popen(
                    [sys.executable, *flags, "-c", _START, str(here), json.dumps(asked)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    bufsize=0,
                    env=os.environ | {"TF_CONFIG": cluster_addresses.task_config(ports, index)},
                    # A terminal's Ctrl-C is to come by way of this process, as any signal does,
                    # and what a script starts is to be stopped with it.
                    process_group=0,
                )
                self._add(index, port, process)
        except OSError as error:
            _say(f"error: cannot start worker {len(self.workers)} of {count}: {error}")
            return False
        return True

    def watch(self, signals: list[int]) -> None:
        """Passes on output and signals until all workers ended.

        Args:
            signals: What this process was sent; it grows meanwhile.
        """
        handled = 0
        while self._running:
            for key, _ in self._selector.select(_POLL_S):
                self._pass_on(key.data)
            now = time.monotonic()
            self._notice_ends(now)
            if len(signals) > handled:
                self._pass_on_signal(signals[handled], now, again=handled > 0)
                handled += 1
            self._stop_in_time(now)

    def kill(self) -> None:
        """Kills what still runs and closes all pipes."""
        for worker in self.workers:
            worker.send(signal.SIGKILL)
            worker.process.wait()
            self._close(worker)
        self._selector.close()

    def _add(self, index: int, port: int, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None and process.stderr is not None
        prefix = f"[worker {index}] "
        streams = (
            _Stream(process.stdout, PrefixedLines(prefix), sys.stdout.fileno()),
            _Stream(process.stderr, PrefixedLines(prefix), sys.stderr.fileno()),
        )
        for stream in streams:
            self._selector.register(stream.pipe, selectors.EVENT_READ, stream)
        worker = _Worker(index, port, process, streams)
        self.workers.append(worker)
        self._running.append(worker)

    def _pass_on(self, stream: _Stream) -> None:
        """Passes on what is there of a stream, which is its end where nothing is."""
        data = os.read(stream.pipe.fileno(), _CHUNK_BYTES)
        try:
            _write(stream.to, stream.lines.feed(data) if data else stream.lines.rest())
        except OSError:
            # Nobody takes it: the worker is to notice that by its own next line, as it would alone.
            data = b""
        if not data:
            self._selector.unregister(stream.pipe)
            stream.pipe.close()

    def _close(self, worker: _Worker) -> None:
        """Passes on what is left of a worker's last lines, and closes its pipes."""
        for stream in worker.streams:
            if not stream.pipe.closed:
                with contextlib.suppress(OSError):
                    _write(stream.to, stream.lines.rest())
                self._selector.unregister(stream.pipe)
                stream.pipe.close()

    def _notice_ends(self, now: float) -> None:
        for worker in [*self._running]:
            status = worker.process.poll()
            if status is None:
                continue
            if worker.ended_at == math.inf:
                worker.ended_at = now
                if status and not worker.stopped and self.first_failed is None:
                    self.first_failed = status
                    self._stop_at = now + self._patience.own_end
            silent = all(stream.pipe.closed for stream in worker.streams)
            if silent or now >= worker.ended_at + self._patience.output:
                self._close(worker)
                self._running.remove(worker)
                if status and not worker.stopped:
                    self._say_failed(worker, status)

    def _say_failed(self, worker: _Worker, status: int) -> None:
        said = f"worker {worker.index} {ended_text(status)}"
        if status > 0 and _is_taken(worker.port):
            said += f"; another process has taken its port, {worker.port}: run it again"
        if self._running and self._stop_at < math.inf:
            said += f"; {self._named()} will be stopped in {self._patience.own_end:g} s"
        _say(said)

    def _pass_on_signal(self, number: int, now: float, *, again: bool) -> None:
        """Tells all workers to end by what this process was told; at once when told again."""
        _say(f"{signal.Signals(number).name}: stopping {self._named()}")
        self._stop_at = math.inf
        self._kill_at = now if again else now + self._patience.stop
        self._send(number)

    def _stop_in_time(self, now: float) -> None:
        if now >= self._stop_at:
            _say(f"stopping {self._named()}")
            self._stop_at = math.inf
            self._kill_at = now + self._patience.stop
            self._send(signal.SIGTERM)
        if now >= self._kill_at:
            self._kill_at = math.inf
            self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        for worker in self._running:
            worker.send(number)

    def _named(self) -> str:
        return named([worker.index for worker in self._running])


def _is_taken(port: int) -> bool:
    """Whether a process other than those that ended holds a port."""
    with socket.socket() as probe:
        # What the worker's own connections leave in the kernel for a while does not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def _told(folder: pathlib.Path, index: int) -> pathlib.Path:
    return folder / f"{index}.told.json"


def _reports(folder: pathlib.Path, index: int) -> pathlib.Path:
    return folder / f"{index}.reports.json"


def _read_json(path: pathlib.Path) -> Any:
    """What a worker wrote; None where it wrote nothing, or was killed before it had written all."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _say(text: str) -> None:
    # Workers are stopped whether or not somebody still reads why.
    with contextlib.suppress(OSError):
        print(f"wu-shard: {text}.", file=sys.stderr, flush=True)
