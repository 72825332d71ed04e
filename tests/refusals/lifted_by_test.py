"""Words that lift refusals are shared by kinds; they read after "lifted by"."""

from __future__ import annotations

import pytest

from tf_wu_shard.refusals import KINDS, lifted_by

WORDS = {name: value for name, value in vars(lifted_by).items() if name.isupper()}


@pytest.mark.parametrize("name", WORDS)
def test_more_than_one_kind_is_lifted_by_it(name: str) -> None:
    assert sum(WORDS[name] in kind.cure for kind in KINDS.values()) > 1


def test_no_two_say_the_same() -> None:
    assert len(set(WORDS.values())) == len(WORDS)
