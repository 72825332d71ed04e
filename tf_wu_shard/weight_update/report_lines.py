"""Which line of the user's program made the op that holds most of an update back."""

from __future__ import annotations

import dataclasses
from typing import Any

from tf_wu_shard.model_files.source_lines import own_line
from tf_wu_shard.report.report import Report
from tf_wu_shard.tensorflow_private import op_traces


def with_line(report: Report, graph: Any) -> Report:
    """A report that names the line, where TensorFlow knows it.

    Args:
        report: What was done to a function.
        graph: Its FuncGraph, as it was traced.
    """
    held = report.held_back
    if held is None or not held.where:
        return report
    line = own_line(op_traces.frames(graph, held.where))
    return dataclasses.replace(report, held_back=dataclasses.replace(held, line=line))
