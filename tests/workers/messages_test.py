"""A text that another worker left is read whole, or refused with what is wrong with it."""

from __future__ import annotations

import pytest

from tf_wu_shard.workers import messages
from tf_wu_shard.workers.messages import MessageError


def test_what_was_written_is_read() -> None:
    text = messages.write({"name": "Übung", "count": 3, "more": True})
    assert messages.read(text, {"count": int, "name": str}) == {"count": 3, "name": "Übung"}


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("{", "it is no JSON"),
        ("[" * 100_000, "it is no JSON"),
        ("[1]", "it is no JSON object"),
        ('{"count": 1}', "its format is None, and this worker reads 1"),
        ('{"count": 1, "format": 2}', "its format is 2"),
        ('{"format": 1}', "its field 'count' is no int"),
        ('{"count": "1", "format": 1}', "its field 'count' is no int"),
        ('{"count": true, "format": 1}', "its field 'count' is no int"),
    ],
)
def test_a_damaged_text_says_what_is_wrong(text: str, wrong: str) -> None:
    with pytest.raises(MessageError, match=wrong):
        messages.read(text, {"count": int})
