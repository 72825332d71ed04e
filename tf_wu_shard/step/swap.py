"""The FuncGraph that takes a traced one's place once all passes have worked on its step."""

from __future__ import annotations

from typing import Any

from tf_wu_shard import captures
from tf_wu_shard.step.step import Step
from tf_wu_shard.tensorflow_private.graph_rebuilding import NewBody, rebuild


def rebuilt(step: Step) -> Any:
    """Makes the FuncGraph of a step.

    The old one stays as it is, and so does all storage: what the step has `pending` is to be
    committed next.

    Args:
        step: What the last pass returned.

    Returns:
        The FuncGraph; the traced one where no pass changed anything.

    Raises:
        tf.errors.InvalidArgumentError: If TensorFlow does not accept the nodes.
    """
    if not step.is_changed:
        return step.graph
    new = rebuild(
        step.graph,
        step.body or body_of(step),
        new_captures=step.bindings,
        dropped_captures=step.dropped,
        owners=step.owners,
    )
    captures.note_components(new, step.components)
    return new


def body_of(step: Step) -> NewBody:
    """What a step's function consists of, as far as its view is the whole of it."""
    view = step.view
    return NewBody(
        [op.node for op in view],
        [f"{value.op}:{value.index}" for value in view.outputs],
        view.control_outputs,
        step.captured.functions.values(),
    )
