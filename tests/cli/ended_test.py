"""How a process ended is told by the status or the name of the signal."""

from __future__ import annotations

import pytest

from tf_wu_shard.cli.ended import ended_text


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (0, "ended with status 0"),
        (3, "ended with status 3"),
        (-9, "was ended by SIGKILL"),
        (-1000, "was ended by signal 1000"),
    ],
)
def test_a_signal_has_its_name_where_it_has_one(status: int, text: str) -> None:
    assert ended_text(status) == text
