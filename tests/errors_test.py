"""Every error of the package is caught as one, and as the built-in error that it is."""

from __future__ import annotations

import inspect

import pytest

from tf_wu_shard import errors
from tf_wu_shard.errors import WuShardError

ERRORS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]


@pytest.mark.parametrize("kind", ERRORS)
def test_it_is_caught_as_the_packages_own_and_says_what_it_is_about(kind: type) -> None:
    assert issubclass(kind, WuShardError) and kind.__doc__
    with pytest.raises(WuShardError, match="why"):
        raise kind("why")


@pytest.mark.parametrize("kind", [kind for kind in ERRORS if kind is not WuShardError])
def test_code_that_knows_nothing_of_the_package_catches_it_too(kind: type) -> None:
    built_in = [base for base in kind.__mro__ if base.__module__ == "builtins"]
    assert not {Exception, BaseException, object}.issuperset(built_in)


def test_nothing_sharded_is_too_little_sharded() -> None:
    assert issubclass(errors.NothingShardedError, errors.TooLittleShardedError)
