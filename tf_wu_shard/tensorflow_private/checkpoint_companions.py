"""What checkpoints hold beside variables of a strategy: one more object for each that has one.

TensorFlow walks from object to object and saves each that has a state. Here a variable, whether
TensorFlow's own or inside of Keras', has one more child. A checkpoint that is restored before the
object is there has it made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import tensorflow as tf
from tensorflow.python.checkpoint import async_checkpoint_helper, checkpoint, graph_view
from tensorflow.python.distribute import values
from tensorflow.python.trackable import base

from tf_wu_shard.tensorflow_private.wrapping import wrap_once

# Where Keras' variables keep those of TensorFlow.
_INSIDE = ("_value", "_variable")


class Companions(Protocol):
    """What stands beside variables."""

    def of(self, variable: Any) -> tf.train.experimental.PythonState | None:
        """What a checkpoint that is written now holds beside a variable; None for nothing."""

    def made(self, variable: Any) -> tf.train.experimental.PythonState:
        """What a checkpoint that holds something beside a variable is restored to."""

    def before_save(self, variables: Iterable[Any]) -> None:
        """Called before a checkpoint of some variables is written."""

    def before_restore(self, variables: Iterable[Any]) -> None:
        """Called before one is restored, whether it holds anything beside them or not."""

    def before_save_aside(self, variables: Iterable[Any]) -> None:
        """Called before one is written that has copies of the variables, and nothing else."""


def install(name: str, companions: Companions) -> None:
    """Has checkpoints hold them from now on; once for all.

    Args:
        name: What a checkpoint calls them, below a variable.
        companions: What stands beside variables.
    """

    def children(original: Callable[..., Any], owner: Any, *args: Any, **kwargs: Any) -> Any:
        found = original(owner, *args, **kwargs)
        (save_type,) = args[:1] or (kwargs.get("save_type", base.SaveType.CHECKPOINT),)
        variable = _variable_of(owner)
        companion = None
        if variable is not None and save_type == base.SaveType.CHECKPOINT:
            companion = companions.of(variable)
        return found if companion is None else {**found, name: companion}

    def child(original: Callable[..., Any], owner: Any, local: str, *args: Any) -> Any:
        variable = _variable_of(owner) if local == name else None
        return original(owner, local, *args) if variable is None else companions.made(variable)

    def save(original: Callable[..., Any], saver: Any, *args: Any, **kwargs: Any) -> Any:
        # Another thread writes copies: what they were made of may be another by now.
        if saver._object_map is None:
            companions.before_save(_variables_of(saver._graph_view))
        return original(saver, *args, **kwargs)

    def restore(
        original: Callable[..., Any], saver: Any, save_path: Any, *args: Any, **kw: Any
    ) -> Any:
        # Of no path nothing is restored.
        if save_path is not None:
            companions.before_restore(_variables_of(saver._graph_view))
        return original(saver, save_path, *args, **kw)

    def save_aside(original: Callable[..., Any], helper: Any, *args: Any, **kwargs: Any) -> Any:
        companions.before_save_aside(_variables_of(helper.checkpointer()._saver._graph_view))
        return original(helper, *args, **kwargs)

    wrap_once(base.Trackable, "_trackable_children", children)
    wrap_once(base.Trackable, "_lookup_dependency", child)
    wrap_once(checkpoint.TrackableSaver, "save", save)
    wrap_once(checkpoint.TrackableSaver, "restore", restore)
    for method in ("save", "_write"):
        wrap_once(async_checkpoint_helper.AsyncCheckpointHelper, method, save_aside)


def _variable_of(owner: Any) -> Any:
    """The strategy's variable that an object is, or is another name for; None for all others."""
    if isinstance(owner, values.DistributedVariable):
        return owner
    state = getattr(owner, "__dict__", {})
    inside = (state.get(name) for name in _INSIDE)
    return next((one for one in inside if isinstance(one, values.DistributedVariable)), None)


def variables_in(root: Any) -> list[Any]:
    """The strategies' variables that a checkpoint of an object would hold, such as of a model.

    Args:
        root: The object; one that TensorFlow does not track has none.
    """
    if not isinstance(root, base.Trackable):
        return []
    return _variables_of(graph_view.ObjectGraphView(root))


def _variables_of(view: graph_view.ObjectGraphView) -> list[Any]:
    objects, _ = view.breadth_first_traversal()
    # A Keras variable and the one inside of it may both be found.
    found = {id(one): one for one in map(_variable_of, objects) if one is not None}
    return [*found.values()]
