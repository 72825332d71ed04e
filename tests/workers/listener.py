"""A process that listens and says a word to whoever connects, as TensorFlow's server does.

    python -m tests.workers.listener [hangs_up]

It prints its port.
"""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator


@dataclasses.dataclass(frozen=True)
class Listener:
    """One that runs.

    Attributes:
        process: It.
        port: Where it listens, on this machine.
    """

    process: subprocess.Popen[str]
    port: int

    @property
    def address(self) -> tuple[str, int]:
        """Its host and port, as a cluster names it."""
        return "localhost", self.port

    def kill(self) -> None:
        """Ends it by SIGKILL."""
        self.process.kill()

    def stop(self) -> None:
        """Stops it by SIGSTOP."""
        self.process.send_signal(signal.SIGSTOP)


@contextlib.contextmanager
def listening(*words: str) -> Iterator[Listener]:
    """Starts one, and kills it in the end.

    Args:
        words: Its command line; with `hangs_up` it ends every connection at once.
    """
    command = [sys.executable, "-m", "tests.workers.listener", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield Listener(process, int(process.stdout.readline()))
        finally:
            process.kill()


def main(*words: str) -> None:
    """Listens for ever."""
    with socket.create_server(("localhost", 0)) as server:
        print(server.getsockname()[1], flush=True)
        held = []
        while True:
            connection, _ = server.accept()
            connection.send(b"settings")
            if "hangs_up" in words:
                connection.close()
            else:
                held.append(connection)


def free_port() -> int:
    """A port at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        port: int = taken.getsockname()[1]
        return port


if __name__ == "__main__":
    main(*sys.argv[1:])
