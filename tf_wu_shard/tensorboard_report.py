"""The report in TensorBoard, by a Keras callback.

It writes TensorBoard's event files with what TensorFlow itself has; TensorBoard is needed to see
them, and only then.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tf_wu_shard.config import current_options
from tf_wu_shard.errors import StorageError
from tf_wu_shard.estimation.model_summary import report_of
from tf_wu_shard.report.markdown import as_markdown
from tf_wu_shard.report.published import reports
from tf_wu_shard.report.report import Report
from tf_wu_shard.storage.sharded_slot import slot_of_packed, slot_of_shard
from tf_wu_shard.tensorflow_private import function_graph, traced_graphs
from tf_wu_shard.tensorflow_private.distributed_variables import distributed_variable_of
from tf_wu_shard.weight_update.rewrite.names import SCOPE

# The run that it is in TensorBoard.
RUN = "weight_update_sharding"

OFF = (
    "**nothing sharded: the flag `weight_update_sharding` is off**\n\n"
    "Turn it on before the step is traced:"
    ' `tf.config.optimizer.set_experimental_options({"weight_update_sharding": True})`.'
)
UNTOLD = (
    "**nothing sharded: the flag `weight_update_sharding` is on, and no report tells of this"
    " model's train step**\n\nA step that was traced before the flag was set stays as it is."
)


class TensorBoardReport(keras.callbacks.Callback):
    """Shows what was sharded in TensorBoard, in a run of its own, `weight_update_sharding`.

    A callback for `model.fit`. After the first batch, and again after a batch for which the step
    was traced anew:

    - *Text*: the report as a table, with the reasons for what was left alone; with the flag off, or
      nothing sharded, that and why;
    - *Scalars*: bytes of optimizer slots on the fullest replica, unsharded and sharded, bytes that
      reach a replica in a step, and milliseconds of the pass and of the trace that it is part of;
    - *Graphs*: the rewritten graph, its ops in scopes `wu_shard/<variable>/...`.

    The step of each is the optimizer's.
    """

    def __init__(self, log_dir: str | os.PathLike[str]) -> None:
        """Writes nothing yet.

        Args:
            log_dir: What TensorBoard is given as `--logdir`; the same as for
                `keras.callbacks.TensorBoard`.
        """
        super().__init__()
        self._log_dir = os.path.join(os.fspath(log_dir), RUN)
        self._writer: Any = None
        self._seen = 0
        self._told = False

    def on_train_begin(self, logs: Any = None) -> None:
        """Notes what was reported before this training."""
        self._seen = len(reports())
        self._told = False

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Writes what was reported for the step since."""
        self._write()

    def on_train_end(self, logs: Any = None) -> None:
        """Closes the file; there is one also where no batch was trained."""
        self._write()
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _write(self) -> None:
        found = self._new_reports()
        if self._told and not found:
            return
        if self._writer is None:
            self._writer = tf.summary.create_file_writer(self._log_dir)
        step = int(self.model.optimizer.iterations.numpy())
        with self._writer.as_default(step):
            _write_text(found)
            for report in found:
                _write_scalars(report)
            if any(report.variables for report in found):
                _write_graph(self.model)
        self._writer.flush()
        self._told = True

    def _new_reports(self) -> Sequence[Report]:
        known = reports()
        found = known[min(self._seen, len(known)) :]
        self._seen = len(known)
        if found or self._told:
            return found
        # The step was traced before this training.
        earlier = report_of(self.model)
        return () if earlier is None else (earlier,)


def _write_text(found: Sequence[Report]) -> None:
    text = "\n\n---\n\n".join(map(as_markdown, found))
    if not found:
        text = OFF if current_options() is None else UNTOLD
    _write("report", tf.constant(text), "text", data_class=2)


def _write_scalars(report: Report) -> None:
    slots, wire = report.slot_bytes_per_replica, report.wire_bytes
    # Cards have room for the first words of a tag.
    values = {
        "unsharded slots, bytes": slots.unsharded,
        "sharded slots, bytes": slots.sharded,
        "wire a step, bytes": wire.sharded,
        "pass, ms": report.pass_ms,
        "trace with the pass, ms": report.trace_ms,
    }
    for name, value in values.items():
        _write(name, tf.constant(value, tf.float32), "scalars", data_class=1)


def _write(name: str, value: tf.Tensor, plugin: str, data_class: int) -> None:
    """Writes a value for a plugin of TensorBoard's (summary.proto's DataClass: scalar, tensor)."""
    metadata = tf.compat.v1.SummaryMetadata(data_class=data_class)
    metadata.plugin_data.plugin_name = plugin
    tf.summary.write(f"{SCOPE}/{name}", value, metadata=metadata)


def _write_graph(model: keras.Model) -> None:
    """Writes the function that trains a model and holds emitted ops; of several, that with most."""
    own = {id(v.value) for v in (*model.trainable_variables, *model.optimizer.variables)}
    graphs = [graph for graph in traced_graphs.existing_graphs() if _uses(graph, own)]
    counts = [
        sum(op.name.startswith(f"{SCOPE}/") for op in graph.get_operations()) for graph in graphs
    ]
    if any(counts):
        tf.summary.graph(graphs[counts.index(max(counts))].as_graph_def())


def _uses(graph: Any, variables: set[int]) -> bool:
    """Whether a FuncGraph captures one of some mirrored variables, or its shards."""
    for handle, _ in function_graph.captured_handles(graph):
        found = distributed_variable_of(handle)
        slot = slot_of_packed(handle) or slot_of_shard(handle)
        try:
            variable = found[0] if found else slot.variable if slot else None
        except StorageError:
            # Of another model, which is gone; only its graph is still there.
            continue
        if id(variable) in variables:
            return True
    return False
