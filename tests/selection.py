"""Which cases of a test every run takes, and which of them this run is about."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest


def cases(values: Iterable[Any], quick: Container[Any]) -> list[Any]:
    """Test parameters of which all that are not quick are part of the full matrix only.

    Args:
        values: What the parameter is; tuples are of several parameters.
        quick: Those of them that every run takes.
    """
    return [
        pytest.param(
            *(one if isinstance(one, tuple) else (one,)),
            marks=() if one in quick else pytest.mark.slow,
        )
        for one in values
    ]


def selected(request: pytest.FixtureRequest, parameter: str, **of: Any) -> tuple[Any, ...]:
    """The values of a parameter in the selected tests of the asking module, each once.

    A process that does all cases at once does no more than what is asked about.

    Args:
        request: Of a fixture of the module.
        parameter: The parameter's name.
        of: Only tests whose other parameters are these.
    """
    calls = [
        item.callspec.params
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.module is request.module
        and hasattr(item, "callspec")
    ]
    wanted = [c[parameter] for c in calls if parameter in c and of.items() <= c.items()]
    return tuple(dict.fromkeys(wanted))
