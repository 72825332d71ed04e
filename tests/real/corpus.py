"""All programs, by name."""

from __future__ import annotations

import importlib

from tests.real.program import Program

# Those of a family stand in one file.
FAMILIES = (
    "classifiers",
    "sequences",
    "language_models",
    "vision",
    "generative",
    "two_towers",
    "recipes",
    "numeric",
    "text",
    "settings",
    "custom_loops",
    "keras_two",
    "keras_two_loops",
)


def programs() -> dict[str, Program]:
    """All programs by name, family by family; imports TensorFlow and both Kerases."""
    found: dict[str, Program] = {}
    for family in FAMILIES:
        for one in importlib.import_module(f"tests.real.{family}").PROGRAMS:
            assert one.name not in found, f"two programs are called {one.name}"
            found[one.name] = one
    return found
