"""One worker's answer to one request for its shard: how it is left in the table and taken out.

Below its key an answer has a claim, a header, the pieces of the shard, and an end. The reader
takes pieces while others are still coming, so its patience is for silence and not for the size of a
shard. Whoever answers and whoever gives up waiting insert the same claim, header and end, so one of
them comes second, sees it, and cleans up: no shard stays in the table because its reader was gone.

Answers: what a worker said, and its shard. It does not promise which write of the slot that is; the
header counts them. What a worker left that died in the middle of its answer stays.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
from collections.abc import Callable
from typing import Literal, get_args

from tf_wu_shard.workers import messages
from tf_wu_shard.workers.messages import MessageError
from tf_wu_shard.workers.store import Store, wait_for

# Three bytes are four characters of base64: a piece is 1 MiB of text.
_PIECE_BYTES = 3 << 18

ExcuseKind = Literal["busy", "unknown", "failed"]


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """A worker's shard of a slot at one moment.

    Attributes:
        writes: How many writes of the slot this worker has finished.
        shard: The shard's bytes.
    """

    writes: int
    shard: bytes


@dataclasses.dataclass(frozen=True)
class Excuse:
    """Why a worker gives no shard.

    Attributes:
        kind: A write of the slot goes on ("busy"), the worker has no such slot ("unknown"), or it
            could not read its shard ("failed").
        reason: What to tell the reader, as in "worker 1 <reason>".
    """

    kind: ExcuseKind
    reason: str


@dataclasses.dataclass(frozen=True)
class ShardHeader:
    """What a worker says of the shard that it left.

    Attributes:
        writes: How many writes of the slot it had finished.
        pieces: How many pieces the shard is in.
    """

    writes: int
    pieces: int


def claim(store: Store, key: str) -> bool:
    """Begins an answer; False when its reader has given up, and nothing is to be answered."""
    if store.insert(f"{key}/claim", "answers"):
        return True
    store.remove(key)
    return False


def leave(store: Store, key: str, answer: Snapshot | Excuse) -> None:
    """Leaves a claimed answer for its reader, or nothing when that has given up meanwhile.

    Args:
        store: The table.
        key: The answer's.
        answer: The shard, or why there is none.

    Raises:
        StoreError: The table cannot be reached.
    """
    shard = answer.shard if isinstance(answer, Snapshot) else b""
    starts = range(0, len(shard), _PIECE_BYTES)
    if isinstance(answer, Snapshot):
        header = messages.write({"excuse": "", "writes": answer.writes, "pieces": len(starts)})
    else:
        header = messages.write({"excuse": answer.kind, "reason": answer.reason})
    if not store.insert(f"{key}/header", header):
        store.remove(key)
        return
    digest = hashlib.sha256()
    for number, start in enumerate(starts):
        piece = shard[start : start + _PIECE_BYTES]
        digest.update(piece)
        store.insert(_piece_key(key, number), base64.b64encode(piece).decode("ascii"))
    if not store.insert(f"{key}/end", messages.write({"digest": digest.hexdigest()})):
        store.remove(key)


def await_header(
    store: Store, key: str, deadline: float, stop: Callable[[], bool]
) -> ShardHeader | Excuse | None:
    """Waits for what a worker says.

    Args:
        store: The table.
        key: The answer's.
        deadline: In seconds of `time.monotonic`.
        stop: True ends the wait.

    Returns:
        What it says of its shard, why there is none, or None when it said nothing.

    Raises:
        MessageError: The header cannot be read.
        StoreError: The table cannot be reached.
    """
    text = wait_for(store, f"{key}/header", deadline, stop)
    if text is None:
        return None
    kind = messages.read(text, {"excuse": str})["excuse"]
    if kind:
        if kind not in get_args(ExcuseKind):
            raise MessageError(f"its excuse is {kind!r}")
        return Excuse(kind, messages.read(text, {"reason": str})["reason"])
    fields = messages.read(text, {"writes": int, "pieces": int})
    return ShardHeader(fields["writes"], fields["pieces"])


def take(store: Store, key: str, header: ShardHeader, seconds: float) -> bytes:
    """Takes a shard out of the table, piece by piece; nothing of the answer is left there.

    Args:
        store: The table.
        key: The answer's.
        header: What `await_header` gave.
        seconds: How long to wait for each piece after the one before.

    Returns:
        The shard's bytes.

    Raises:
        MessageError: A piece did not come, or is damaged.
        StoreError: The table cannot be reached.
    """
    pieces = []
    digest = hashlib.sha256()
    for number in range(header.pieces):
        what = f"piece {number} of {header.pieces}"
        text = _came(store, _piece_key(key, number), what, seconds)
        store.remove(_piece_key(key, number))
        try:
            pieces.append(base64.b64decode(text, validate=True))
        except ValueError as error:
            raise MessageError(f"{what} is no base64") from error
        digest.update(pieces[-1])
    end = messages.read(_came(store, f"{key}/end", "its end", seconds), {"digest": str})
    if digest.hexdigest() != end["digest"]:
        raise MessageError(f"its {header.pieces} pieces are not the shard that was left")
    store.remove(key)
    return b"".join(pieces)


def give_up(store: Store, key: str) -> None:
    """Ends the wait for an answer: what is there goes, and what comes later is cleaned up.

    Args:
        store: The table.
        key: The answer's.

    Raises:
        StoreError: The table cannot be reached.
    """
    for part in ("claim", "header", "end"):
        if store.insert(f"{key}/{part}", "abandoned"):
            return
    store.remove(key)


def _came(store: Store, key: str, what: str, seconds: float) -> str:
    text = store.get(key, seconds)
    if text is None:
        raise MessageError(f"{what} did not come within {seconds:.3g} seconds")
    return text


def _piece_key(key: str, number: int) -> str:
    return f"{key}/piece/{number}"
