"""The site is built without a warning, has every public name, and fits a window and a phone."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

import tf_wu_shard
from tests.docs.blocks import PAGES
from tests.project.imports import ROOT
from tests.report import browser
from tests.report.browser import Browser
from tf_wu_shard.cli.main import COMMANDS, parser_of

# A window and a phone.
WIDTHS = (1280, 400)

SITE_PAGES = tuple(pathlib.Path(page).stem for page in PAGES if page.startswith("docs/"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The site, built as `make docs` builds it."""
    recipe = subprocess.run(
        ["make", "--dry-run", "docs"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    options = re.search(r"-m sphinx (.*) -d \S+ docs build/docs$", recipe, re.MULTILINE)
    assert options and "-W" in options[1].split(), recipe
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", *options[1].split(), "-d", str(folder / "read")]
    done = subprocess.run(
        [*command, str(ROOT / "docs"), str(folder / "pages")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    return folder / "pages"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    yield from browser.running()


def test_every_page_is_in_a_table_of_contents(site: pathlib.Path) -> None:
    index = (site / "index.html").read_text(encoding="utf-8")
    missing = [
        page for page in SITE_PAGES if page != "index" and f'href="{page}.html"' not in index
    ]
    assert not missing


def test_every_public_name_is_in_the_reference(site: pathlib.Path) -> None:
    reference = (site / "api.html").read_text(encoding="utf-8")
    modules = {"emulation", "extending", "report"}
    names = [f"tf_wu_shard.{name}" for name in tf_wu_shard.__all__ if name not in modules]
    names += ["tf_wu_shard.emulation.emulated_tpu_strategy", "tf_wu_shard.report.TensorBoardReport"]
    names += [f"tf_wu_shard.extending.{name}" for name in ("Pass", "Step", "StepEdit", "beside")]
    assert [name for name in names if f'id="{name}"' not in reference] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_a_command_is_on_the_page(site: pathlib.Path, command: str) -> None:
    page = (site / "commands.html").read_text(encoding="utf-8")
    shown = re.sub(r"<[^>]*>", "", page)
    assert f"wu-shard {command}" in shown
    options = {name for action in parser_of(command)._actions for name in action.option_strings}
    assert [option for option in options - {"-h", "--help"} if option not in shown] == []


def test_nothing_is_loaded_from_elsewhere(site: pathlib.Path) -> None:
    for page in site.glob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img|link|iframe)[^>]*(?:src|href)="(\w+:)?//', text)
        assert loaded == [], page.name


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_a_page_fits_and_complains_of_nothing(
    site: pathlib.Path, chromium: Browser, width: int, dark: bool
) -> None:
    for page in SITE_PAGES:
        chromium.open(site / f"{page}.html", width, dark=dark)
        assert chromium.complaints == [], page
        assert chromium.evaluate("document.documentElement.scrollWidth") <= width, page
        broken = "[...document.images].filter((i) => !i.naturalWidth).map((i) => i.src)"
        assert chromium.evaluate(broken) == [], page
