"""A stream comes out in whole lines behind a prefix, however it is cut on its way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tf_wu_shard.cli.prefixed_lines import PrefixedLines


def _passed(*pieces: bytes) -> bytes:
    lines = PrefixedLines("> ")
    return b"".join(map(lines.feed, pieces)) + lines.rest()


@pytest.mark.parametrize(
    ("stream", "shown"),
    [
        (b"", b""),
        (b"one\n\ntwo\n", b"> one\n> \n> two\n"),
        (b"one\npart", b"> one\n> part\n"),
        (b"\xff\xfe\n", b"> \xff\xfe\n"),
        (b"dos\r\n", b"> dos\n"),
        (b"old\rdos\r\r\n", b"> dos\n"),
        (b"10 %\r50 %\r100 %\n", b"> 100 %\n"),
        (b"10 %\r50 %\r", b"> 50 %\n"),
        (b"\r10 %\r100 %\r\ndone", b"> 100 %\n> done\n"),
    ],
)
def test_a_line_is_what_it_ends_as(stream: bytes, shown: bytes) -> None:
    assert _passed(stream) == shown


@given(st.lists(st.binary(max_size=4) | st.sampled_from([b"\r", b"\n", b"\r\n", b"a"])))
def test_where_a_stream_is_cut_changes_nothing(pieces: list[bytes]) -> None:
    assert _passed(*pieces) == _passed(b"".join(pieces))


def test_a_progress_bar_shows_nothing_before_its_line_ends() -> None:
    lines = PrefixedLines("> ")
    assert {lines.feed(b"\r%d %%" % percent) for percent in range(100)} == {b""}
    assert lines.feed(b"\n") == b"> 99 %\n"
