"""Passes over train steps: who registered one, and which of them the user has switched on.

Sharding the weight update is the package's own and comes last, as it takes the sums of gradients
apart. A registered pass sees the step before that: it may change what is summed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

from tf_wu_shard.config import FLAG
from tf_wu_shard.errors import OptionError, WuShardError

if TYPE_CHECKING:
    from tf_wu_shard.graph.view import GraphView
    from tf_wu_shard.step.step import Step


class Pass(Protocol):
    """A change of train steps, behind a flag of its own.

    A pass may have one more method, `is_called_in(view) -> bool`: whether a function that trains
    nothing itself calls what the pass has changed, so that it is to see that function as well.

    Attributes:
        flag: The key of `tf.config.optimizer.set_experimental_options` that switches it on.
    """

    flag: str

    def parse(self, value: object) -> Any | None:
        """Reads a value of the flag.

        Args:
            value: What the user set; None where the flag was never set.

        Returns:
            The options to work with, or None when the flag is off.

        Raises:
            OptionError: The value is no value of the flag.
        """

    def apply(self, step: Step, options: Any) -> Step:
        """Changes a step; nothing live, and nothing of the step that it is given.

        Args:
            step: A traced function that trains variables of several replicas.
            options: What `parse` returned.

        Returns:
            The step for the next pass; the same one where there is nothing to do.
        """


_registered: dict[str, Pass] = {}


def register_pass(new: Pass) -> None:
    """Adds a pass over train steps, and teaches TensorFlow's context its flag.

    Passes work in the order in which they were registered. Registering a flag again replaces its
    pass, for functions that are traced from then on.

    Args:
        new: The pass.

    Raises:
        OptionError: The flag is tf_wu_shard's own or TensorFlow's, is no word, or is set to a wrong
            value already.
    """
    if new.flag == FLAG:
        raise OptionError(f"the flag {FLAG!r} is tf_wu_shard's own; give the pass another")
    if not isinstance(new.flag, str) or not new.flag.isidentifier():
        raise OptionError(f"a pass's flag must be a word such as 'my_pass', not {new.flag!r}")
    # Imported here, as code that only reads plans must not load TensorFlow.
    from tf_wu_shard.tensorflow_private import context_options

    context_options.install(new.flag, new.parse)
    _registered[new.flag] = new


def switched_on() -> list[tuple[Pass, Any]]:
    """The passes whose flags are on right now, each with its options, in their order."""
    if not _registered:
        return []
    from tf_wu_shard.tensorflow_private import context_options

    asked = [(one, one.parse(context_options.option(flag))) for flag, one in _registered.items()]
    return [(one, options) for one, options in asked if options is not None]


def called_in(view: GraphView, passes: Iterable[tuple[Pass, Any]]) -> list[tuple[Pass, Any]]:
    """Those that have changed what a graph calls, each with its options.

    Args:
        view: The graph.
        passes: The passes, each with its options.
    """
    asked = ((getattr(one, "is_called_in", None), one, options) for one, options in passes)
    return [
        (one, options)
        for is_called_in, one, options in asked
        if is_called_in is not None and is_called_in(view)
    ]


def applied(step: Step, passes: Iterable[tuple[Pass, Any]]) -> Step:
    """Lets passes change a step, one after the other.

    Args:
        step: The step.
        passes: The passes, each with its options.

    Returns:
        The step with what each changed; its report names every pass that changed it.

    Raises:
        WuShardError: A pass returned none.
    """
    for one, options in passes:
        new = one.apply(step, options)
        if new is None:
            raise WuShardError("it returned no step; where there is nothing to do, return the same")
        silent = new.changes.get(one.flag) == step.changes.get(one.flag)
        if silent and new.captured is not step.captured:
            new = dataclasses.replace(new, changes={**new.changes, one.flag: "the step is changed"})
        step = new
    return step
