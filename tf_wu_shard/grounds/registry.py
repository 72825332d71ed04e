"""Which dialects `ShardingOptions(dialect=...)` knows by name; loads none of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tf_wu_shard.errors import OptionError

if TYPE_CHECKING:
    from tf_wu_shard.grounds.dialect import Dialect
    from tf_wu_shard.replicas import Replicas

# The package's own, for replicas of one process; `step.replicas` makes them.
BUILT_IN = ("auto", "reference", "collective")

# Makes the dialect of one graph, for the replicas that it holds.
MakeDialect = Callable[["Replicas"], "Dialect"]

_registered: dict[str, MakeDialect] = {}


def register_dialect(name: str, make: MakeDialect) -> None:
    """Adds another way in which replicas of one process exchange data.

    Afterwards `ShardingOptions(dialect=name)` chooses it for functions that are traced from then
    on. Registering a name again replaces it for those.

    Args:
        name: What to call it; not one of the package's own.
        make: Makes the dialect of one graph, from the `Replicas` that the graph holds; a subclass
            of `CopyOfEachReplica` does.

    Raises:
        OptionError: The name is one of the package's own, or no name, or `make` cannot be called.
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise OptionError(f"a dialect's name must be a word such as 'by_ring', not {name!r}")
    if name in BUILT_IN:
        raise OptionError(f"the dialect {name!r} is tf_wu_shard's own; register another name")
    if not callable(make):
        raise OptionError(
            f"the dialect {name!r} must be registered with what makes it from Replicas, a class or"
            f" a function, not {make!r}"
        )
    _registered[name] = make


def dialect_names() -> tuple[str, ...]:
    """Every name that an option may have: the package's own first."""
    return (*BUILT_IN, *_registered)


def registered(name: str) -> MakeDialect | None:
    """What makes the dialect that was registered under a name; None where none was."""
    return _registered.get(name)
