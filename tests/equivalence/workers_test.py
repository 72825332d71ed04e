"""Under several workers nothing is sharded, and the report says what keeps it from being so."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for held in sockets:
        held.bind(("localhost", 0))
    ports = [held.getsockname()[1] for held in sockets]
    for held in sockets:
        held.close()
    return ports


def test_the_other_workers_replicas_are_the_reason() -> None:
    cluster = {"worker": [f"localhost:{port}" for port in _free_ports(2)]}
    workers = []
    for index in range(2):
        config = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
        workers.append(
            subprocess.Popen(
                [sys.executable, "-m", "tests.equivalence.workers_run"],
                env=os.environ | {"TF_CONFIG": config, "TF_CPP_MIN_LOG_LEVEL": "3"},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    # What one waits for the other may never send.
    said = [worker.communicate(timeout=300) for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], said[0][1][-3000:]
    for out, _ in said:
        (reason,) = json.loads(out.splitlines()[-1])
        assert reason.startswith("its replicas are spread over several workers")
