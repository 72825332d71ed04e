"""How fast this machine copies memory with all the cores the process may use.

The yardstick of `limit_s`. A copy of n bytes reads n and writes n and counts 2 n, as the reads and
writes of an update are counted. The pages are touched before, so that no page fault is in the
time; TensorFlow's own fresh buffers do pay for these, which makes the yardstick a strict one.
"""

from __future__ import annotations

import concurrent.futures
import time

import numpy as np

from tf_wu_shard.cores import usable_cores

# Source and target together exceed the caches of any machine this is likely to run on.
DEFAULT_BYTES = 256 * 1024 * 1024


class CopySpeed:
    """Two buffers, one thread a core; each call is one sample."""

    def __init__(self, num_bytes: int = DEFAULT_BYTES) -> None:
        """Allocates and touches the buffers.

        Args:
            num_bytes: Size of the source, shared by the threads; at least one byte a thread.
        """
        threads = usable_cores()
        self._num_bytes = num_bytes
        self._sources = np.array_split(np.ones(num_bytes, np.uint8), threads)
        self._targets = np.array_split(np.zeros(num_bytes, np.uint8), threads)
        self._threads = concurrent.futures.ThreadPoolExecutor(threads)
        self.bytes_per_s()

    def bytes_per_s(self) -> float:
        """Copies once; returns bytes read plus bytes written a second."""
        start = time.perf_counter()
        # NumPy lets go of the interpreter lock while it copies.
        list(self._threads.map(np.copyto, self._targets, self._sources))
        return 2 * self._num_bytes / (time.perf_counter() - start)

    def close(self) -> None:
        """Ends the threads and frees the buffers."""
        self._threads.shutdown()
        self._sources, self._targets = [], []
