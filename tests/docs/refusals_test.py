"""The documentation's page of reasons is what the catalogue says today."""

from __future__ import annotations

from tf_wu_shard.refusals import KINDS
from tools.refusals import PAGE, main


def test_the_page_is_current() -> None:
    assert main(["--check"]) == 0


def test_every_kind_has_a_row() -> None:
    rows = PAGE.read_text(encoding="utf-8").splitlines()
    for name in KINDS:
        assert sum(row.startswith(f"| `{name}` |") for row in rows) == 1
