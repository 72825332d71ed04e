"""What the tests of the compiler share: its processes, started once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tf_wu_shard.bench.conversation import Worker
from tf_wu_shard.tpu_compiler import children


@pytest.fixture(scope="session")
def compiler() -> Iterator[Worker]:
    """A process with JAX, libtpu and eight CPU devices."""
    with children.compiler(cpu_devices=8) as worker:
        yield worker
