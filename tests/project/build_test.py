"""BUILD is what the tool makes of the folders and imports of today."""

from __future__ import annotations

from tests.project.imports import CHECKOUT, ROOT
from tools.build_targets.text import COMMAND, build_text


def test_build_is_what_the_imports_say() -> None:
    written = (ROOT / "BUILD").read_text(encoding="utf-8")
    assert written == build_text(CHECKOUT), f"write it again: {COMMAND}"
