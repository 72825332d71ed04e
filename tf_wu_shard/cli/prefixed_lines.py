"""One stream of one worker, as whole lines that say whose they are.

Answers: which lines are complete after some more bytes, and what is left at the end. A line that
was overwritten, as progress bars overwrite theirs by carriage returns, is what it was last. Bytes
are bytes: nothing is decoded. It does not promise what a terminal shows of cursor movements other
than a carriage return, and it holds a line until it ends, however long that line is.
"""

from __future__ import annotations

_RETURN = ord("\r")


class PrefixedLines:
    """Takes a stream as it comes and gives its lines, each behind a prefix."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix.encode()
        self._rest = bytearray()

    def feed(self, data: bytes) -> bytes:
        """The lines that end in `data`, the first with what came of it before.

        Args:
            data: The next bytes of the stream.
        """
        first, *others = data.split(b"\n")
        self._extend(first)
        if not others:
            return b""
        *between, last = others
        ended = [bytes(self._rest), *between]
        self._rest.clear()
        self._extend(last)
        return b"".join(map(self._shown, ended))

    def rest(self) -> bytes:
        """What came after the last line's end, as a line of its own; b"" where nothing did."""
        rest = bytes(self._rest)
        self._rest.clear()
        return self._shown(rest) if rest else b""

    def _extend(self, data: bytes) -> None:
        looked_at = max(len(self._rest) - 1, 0)
        self._rest += data
        end = len(self._rest)
        while end and self._rest[end - 1] == _RETURN:
            end -= 1
        # Returns at the very end overwrite nothing yet: the line's end may follow. One says it all.
        del self._rest[end + 1 :]
        # A progress bar may go on for hours before its line ends.
        overwritten = self._rest.rfind(_RETURN, looked_at, end)
        if overwritten >= 0:
            del self._rest[: overwritten + 1]

    def _shown(self, line: bytes) -> bytes:
        return self._prefix + line.rstrip(b"\r").rpartition(b"\r")[2] + b"\n"
