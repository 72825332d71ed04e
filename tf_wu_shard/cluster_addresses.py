"""A cluster of workers on this machine: the ports they listen at, and what each is told of it.

Answers with numbers and texts; it starts no process. TensorFlow's server listens on all interfaces
of the machine, whatever address its cluster has for it.
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator, Sequence

_HOST = "127.0.0.1"


@contextlib.contextmanager
def held_ports(count: int) -> Iterator[list[int]]:
    """Free ports, all different, that nobody else is given as long as they are held.

    A socket that is bound and does not listen keeps its port from being chosen for others. On Linux
    a server that allows the address to be reused, as TensorFlow's does, may listen there meanwhile;
    elsewhere it may have to wait until the ports are held no more.

    Args:
        count: How many.

    Raises:
        OSError: The system has no such number of ports or sockets to give.
    """
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            each.bind(("", 0))
        yield [each.getsockname()[1] for each in sockets]


def task_config(ports: Sequence[int], index: int) -> str:
    """The `TF_CONFIG` of one worker.

    Args:
        ports: Of all workers, in their order.
        index: The worker's own place among them.
    """
    cluster = {"worker": [f"{_HOST}:{port}" for port in ports]}
    return json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
