"""What a ground or a pass of one's own needs is offered in one place, all of it documented."""

from __future__ import annotations

import inspect

import pytest

from tf_wu_shard import extending


@pytest.mark.parametrize("name", extending.__all__)
def test_what_is_offered_is_there_with_its_documentation(name: str) -> None:
    offered = getattr(extending, name)
    assert isinstance(offered, int) or inspect.getdoc(offered)


def test_the_methods_of_a_dialect_speak_of_what_is_offered_alone() -> None:
    verbs = {"reduce_scatter", "all_gather", "all_reduce"}
    assert verbs <= set(dir(extending.Dialect))
    assert extending.__all__ == sorted(extending.__all__, key=lambda n: (not n.isupper(), n))
