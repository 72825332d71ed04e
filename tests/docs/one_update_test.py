"""The documentation's picture of one update is what the tool draws today."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

from tests.cli.command import python
from tests.project.imports import ROOT
from tools.one_update import PICTURE, REPLICAS


def test_the_picture_is_current() -> None:
    """In a process of its own: Keras and TensorFlow count what they name."""
    done = python("-m", "tools.one_update", "--check", cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_the_picture_is_one_that_a_browser_takes_for_an_image() -> None:
    """Well-formed, with drawings inside of its text, and loads nothing."""
    root = ElementTree.parse(PICTURE).getroot()
    tags = [element.tag for element in root.iter()]
    assert tags.count("{http://www.w3.org/2000/svg}svg") == 3
    assert f"on each of {REPLICAS} replicas" in "".join(root.itertext())
    text = PICTURE.read_text(encoding="utf-8")
    assert not any(loads in text for loads in ("href", "src=", "url(", "@import", "<script"))
    assert (PICTURE.parent / "how_it_works.md").read_text().count("(one_update.svg)") == 1
