"""One idle connection to every other worker, which tells at once when its process has ended.

A system closes the connections of a process that ends, however it ends, and nobody listens at its
address any more. A process that is stopped, or has much to do, keeps both. Nothing is ever sent:
TensorFlow's server waits a minute for a client's first words and hangs up; then the connection is
made anew.

Answers: at which workers nobody listens any more. It does not promise to tell of every end: a
machine that loses its power closes nothing, and an address that cannot be reached is left alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import selectors
import socket
import time
from collections.abc import Mapping
from typing import Any

# The server's first words are a few bytes, and are not read for what they say.
_BYTES = 4096

# A process that ends may close a connection before it closes the door, and then resets what came in
# between. Something else that hangs up at once, such as a proxy, is asked ever more rarely.
_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 60.0
_HUNG_UP = {errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE, errno.ENOTCONN}

# A family of addresses and an address, as a socket takes them.
_Address = tuple[int, Any]


@dataclasses.dataclass(frozen=True)
class _Connection:
    """A connection that is made, being made, or to be made.

    Attributes:
        number: The worker's.
        address: Where to.
        others: Where else to try if nobody listens there.
        all_refused: Whether all that was tried before was refused.
        pause: How long to wait before it is made, in seconds.
        begun: When it was begun, in seconds of `time.monotonic`.
        is_made: Whether it is one.
    """

    number: int
    address: _Address
    others: tuple[_Address, ...] = ()
    all_refused: bool = True
    pause: float = 0.0
    begun: float = 0.0
    is_made: bool = False


class HeldConnections:
    """To all other workers; one thread uses it, and any thread may `wake` that one."""

    def __init__(self, addresses: Mapping[int, tuple[str, int]]) -> None:
        """Begins to connect, without waiting for more than names to be resolved.

        Args:
            addresses: Each worker's host and port, by its number.
        """
        self._selector = selectors.DefaultSelector()
        self._woken, self._waker = socket.socketpair()
        for end in (self._woken, self._waker):
            end.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        # Those that are to be made, and when.
        self._due: dict[_Connection, float] = {}
        # The last ones that were refused, by worker, and those of them that are not told yet.
        self._last: dict[int, _Connection] = {}
        self._refused: set[int] = set()
        for number, address in addresses.items():
            found = _resolved(*address)
            if found:
                self._begin(_Connection(number, found[0], tuple(found[1:])))

    def refused(self, seconds: float) -> tuple[int, ...]:
        """The workers at whose address nobody listens; each is told once, unless asked `again`.

        Args:
            seconds: How long to wait at most, for that or for `wake`.
        """
        until = min([time.monotonic() + seconds, *self._due.values()])
        wait = 0.0 if self._refused else max(0.0, until - time.monotonic())
        for key, _ in self._selector.select(wait):
            if key.data is None:
                _read(self._woken)
            else:
                self._look(key.fileobj, key.data)
        for connection in [c for c, due in self._due.items() if due <= time.monotonic()]:
            del self._due[connection]
            self._begin(connection)
        told, self._refused = tuple(sorted(self._refused)), set()
        return told

    def again(self, number: int) -> None:
        """Connects anew, after a pause, to a worker that was told, but lives.

        Args:
            number: The worker's.
        """
        self._put_off(self._last[number], self._last[number].pause)

    def wake(self) -> None:
        """Ends a wait in another thread; nothing happens where all are closed."""
        # Where the pair is full it is woken already.
        with contextlib.suppress(OSError):
            self._waker.send(b"\0")

    def close(self) -> None:
        """Ends all connections; nothing may be asked afterwards."""
        for key in [*self._selector.get_map().values()]:
            self._forget(key.fileobj)
        self._waker.close()
        self._selector.close()

    def _begin(self, connection: _Connection) -> None:
        """Begins to connect, without waiting."""
        family, place = connection.address
        made = socket.socket(family, socket.SOCK_STREAM)
        made.setblocking(False)
        error = made.connect_ex(place)
        if error in (0, errno.EINPROGRESS):
            begun = dataclasses.replace(connection, begun=time.monotonic())
            self._selector.register(made, selectors.EVENT_WRITE, begun)
        else:
            made.close()
            self._fail(connection, error)

    def _look(self, made: Any, connection: _Connection) -> None:
        """Looks at a connection on which something has happened."""
        error = _error(made, connection.is_made)
        if error:
            self._forget(made)
            self._fail(connection, error)
        elif not connection.is_made:
            now = dataclasses.replace(connection, is_made=True)
            self._selector.modify(made, selectors.EVENT_READ, now)

    def _fail(self, failed: _Connection, error: int) -> None:
        """Goes on after a connection that has ended, or could not be made."""
        if failed.is_made or error in _HUNG_UP:
            # What lasted for longer than it was waited for begins with the shortest pause anew.
            lasted = time.monotonic() - failed.begun
            self._put_off(failed, failed.pause if lasted < 2 * failed.pause else 0.0)
            return
        refused = failed.all_refused and error == errno.ECONNREFUSED
        if failed.others:
            first, *others = failed.others
            self._begin(_Connection(failed.number, first, tuple(others), refused))
        elif refused:
            self._last[failed.number] = failed
            self._refused.add(failed.number)

    def _put_off(self, failed: _Connection, pause: float) -> None:
        """Will connect to the same address, after twice a pause."""
        longer = min(max(2 * pause, _FIRST_PAUSE), _LONGEST_PAUSE)
        again = _Connection(failed.number, failed.address, pause=longer)
        self._due[again] = time.monotonic() + longer

    def _forget(self, made: Any) -> None:
        self._selector.unregister(made)
        made.close()


def _resolved(host: str, port: int) -> list[_Address]:
    """A host's addresses; none where its name is not known."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return [(family, address) for family, _, _, _, address in found]


def _error(made: socket.socket, is_made: bool) -> int:
    """What is wrong with a connection on which something has happened; 0 where nothing is."""
    if is_made:
        return 0 if _read(made) else errno.ECONNRESET
    error = made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if error:
        return error
    try:
        # Where nobody listens, a socket may be given that very port, and reach itself.
        return errno.ECONNREFUSED if made.getsockname() == made.getpeername() else 0
    except OSError:
        return errno.ENOTCONN


def _read(made: socket.socket) -> bool:
    """Reads what is there; False where the other end has hung up."""
    try:
        return bool(made.recv(_BYTES))
    except BlockingIOError:
        return True
    except OSError:
        return False
