"""Gives memory that was freed back to the system.

TensorFlow frees a slot's whole storage to the C library, which keeps the pages for later. Around
them a step's own buffers, of other sizes, take new ones: a worker of 25.2M parameters under Adam
kept 1,170 MB and more after some steps where 810 MB were enough.
"""

from __future__ import annotations

import ctypes

# To look for free pages takes milliseconds; less than this is not worth them.
_WORTHWHILE_BYTES = 1024 * 1024


def hand_back(freed_bytes: int) -> bool:
    """Asks the C library to give free pages to the system, where it can be asked.

    Args:
        freed_bytes: How much was freed; little is left where it is.

    Returns:
        Whether it was asked. GNU's C library knows `malloc_trim`; others do not.
    """
    if freed_bytes < _WORTHWHILE_BYTES:
        return False
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is None:
        return False
    trim(0)
    return True
