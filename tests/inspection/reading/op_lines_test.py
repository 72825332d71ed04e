"""An op's line is found though the calls around it were written out."""

from __future__ import annotations

from typing import Any

from tf_wu_shard.inspection.reading.op_lines import op_lines
from tf_wu_shard.model_files.source_lines import SourceLines
from tf_wu_shard.model_files.types import Model
from tf_wu_shard.tensorflow_private import model_protos


def model() -> Model:
    """`outer` calls `inner`, by an op with a slash in its name; `inner` calls `deepest`."""
    graph: Any = model_protos.graph_def()
    for name, call, callee in (("outer", "a/call", "inner"), ("inner", "b", "deepest")):
        function = graph.library.function.add()
        function.signature.name = name
        node = function.node_def.add(name=call, op="PartitionedCall")
        node.attr["f"].func.name = callee
    graph.library.function.add().signature.name = "deepest"
    info: Any = model_protos.debug_info()
    info.files.append("train.py")
    for number, key in enumerate(("a/call@outer", "c/d@inner", "e@deepest", "f@")):
        info.traces[key].file_line_cols.add(file_index=0, line=number + 1)
    functions = {function.signature.name: function for function in graph.library.function}
    return Model("", graph, functions, (), {}, {}, (), (), (), SourceLines(info))


def line(op: str, function: str = "outer") -> str:
    return dict(op_lines(model(), function, [op])).get(op, "")


def test_an_op_of_the_function_itself() -> None:
    assert line("a/call") == "train.py:1"


def test_an_op_of_a_called_function() -> None:
    assert line("a/call/c/d") == "train.py:2"


def test_an_op_of_what_a_called_function_calls() -> None:
    assert line("a/call/b/e") == "train.py:3"


def test_an_op_of_the_models_own_graph() -> None:
    assert line("f", "(graph)") == "train.py:4"


def test_what_is_not_there_has_no_line() -> None:
    assert [line(op) for op in ("", "x", "a/x", "a/call/x", "a/call/b/x/y", "e")] == [""] * 6
