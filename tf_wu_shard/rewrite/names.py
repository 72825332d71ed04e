"""Names of emitted ops: `wu_shard/<variable>/<what>`, readable in profiles and graph viewers."""

from __future__ import annotations

import re

SCOPE = "wu_shard"


def scope_of(variable: str, what: str) -> str:
    """The name scope for doing `what` to `variable`, made of characters TensorFlow allows."""
    return f"{SCOPE}/{re.sub(r'[^A-Za-z0-9_./-]', '_', variable)}/{what}"
