"""How a process ended, in words."""

from __future__ import annotations

import signal


def ended_text(status: int) -> str:
    """How a process ended: `ended with status 3`, `was ended by SIGKILL`.

    Args:
        status: What `subprocess.Popen.returncode` has: the exit status, or the negative number of
            the signal that ended the process.
    """
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"
