"""Texts that workers leave for each other: JSON objects with a format number and typed fields.

Answers: what a text says, or why it cannot be read. It does not promise that what it says is true.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

FORMAT = 1

_SHOWN = 60


class MessageError(ValueError):
    """A text is damaged, or of another format; its words say which, without the key."""


def write(fields: Mapping[str, object]) -> str:
    """The text of an object; equal fields give equal texts."""
    return json.dumps({"format": FORMAT, **fields}, sort_keys=True)


def read(text: str, types: Mapping[str, type]) -> dict[str, Any]:
    """Reads a text that `write` gave.

    Args:
        text: The text.
        types: Of each field the type that its value must have, no subclass of it.

    Returns:
        The named fields.

    Raises:
        MessageError: The text is no such object.
    """
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MessageError(f"it is no JSON ({error}): {_shown(text)}") from error
    if not isinstance(fields, dict):
        raise MessageError(f"it is no JSON object: {_shown(text)}")
    if fields.get("format") != FORMAT:
        raise MessageError(
            f"its format is {fields.get('format')!r}, and this worker reads {FORMAT}"
        )
    for name, kind in types.items():
        # bool is an int to Python, but no count.
        if type(fields.get(name)) is not kind:
            raise MessageError(f"its field {name!r} is no {kind.__name__}: {_shown(text)}")
    return {name: fields[name] for name in types}


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")
