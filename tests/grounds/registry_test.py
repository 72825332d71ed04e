"""Dialects by name: a wrong registration is one clear error; an unknown name lists the known."""

from __future__ import annotations

from typing import Any

import pytest

import tf_wu_shard
from tf_wu_shard import OptionError, ShardingOptions
from tf_wu_shard.grounds import registry


def made(replicas: Any) -> Any:
    raise AssertionError("nothing is made before a function is traced")


@pytest.fixture(autouse=True)
def _empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})


def test_a_registered_name_is_an_option() -> None:
    tf_wu_shard.register_dialect("by_ring", made)
    assert ShardingOptions(dialect="by_ring").dialect == "by_ring"
    assert registry.registered("by_ring") is made


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    tf_wu_shard.register_dialect("by_ring", made)
    with pytest.raises(
        OptionError, match="'auto' or 'reference' or 'collective' or 'by_ring', not 'by_rung'"
    ):
        ShardingOptions(dialect="by_rung")


def test_a_name_registered_again_is_replaced() -> None:
    def other(replicas: Any) -> Any:
        return made(replicas)

    tf_wu_shard.register_dialect("by_ring", made)
    tf_wu_shard.register_dialect("by_ring", other)
    assert registry.registered("by_ring") is other


@pytest.mark.parametrize("name", ["auto", "reference", "collective"])
def test_the_packages_own_names_are_taken(name: str) -> None:
    with pytest.raises(OptionError, match=f"{name!r} is tf_wu_shard's own; register another name"):
        tf_wu_shard.register_dialect(name, made)


@pytest.mark.parametrize("name", ["", "by ring", 3])
def test_a_name_that_is_no_word_is_refused(name: Any) -> None:
    with pytest.raises(OptionError, match="must be a word such as 'by_ring'"):
        tf_wu_shard.register_dialect(name, made)


def test_what_cannot_be_called_makes_no_dialect() -> None:
    wrong: Any = "Ring"
    with pytest.raises(OptionError, match="a class or a function, not 'Ring'"):
        tf_wu_shard.register_dialect("by_ring", wrong)
