"""The style sheets name no colour or size that nobody sets, and both schemes have the same."""

from __future__ import annotations

import re

import pytest

from tf_wu_shard.report.page_style import FLOW_STYLE, STYLE, WIDE_FLOW_STYLE

SET = re.compile(r"--([\w-]+):")
USED = re.compile(r"var\(--([\w-]+)\)")

# What each chart and each of its lines says of itself.
BY_CHARTS = {"width", "at"}


@pytest.mark.parametrize("flow", [WIDE_FLOW_STYLE, FLOW_STYLE])
def test_what_is_used_is_set(flow: str) -> None:
    assert set(USED.findall(STYLE + flow)) - set(SET.findall(STYLE + flow)) == BY_CHARTS


def test_the_dark_scheme_has_another_value_for_every_colour_of_the_light_one() -> None:
    light, dark = (
        dict(re.findall(r"--([\w-]+): (#\w+)", block)) for block in STYLE.split("@media", 2)[:2]
    )
    assert light.keys() == dark.keys() and len(light) > 10
    assert all(light[name] != dark[name] for name in light)


@pytest.mark.parametrize("style", [STYLE, WIDE_FLOW_STYLE, FLOW_STYLE])
def test_every_rule_is_closed_and_nothing_is_loaded(style: str) -> None:
    assert style.count("{") == style.count("}")
    assert "url(" not in style and "@import" not in style and "</" not in style


def test_a_narrow_screen_adds_to_the_wide_style() -> None:
    assert FLOW_STYLE.startswith(WIDE_FLOW_STYLE) and "@media" not in WIDE_FLOW_STYLE
