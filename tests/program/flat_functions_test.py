"""Branches written out compute what the branch that is taken computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tf_wu_shard.graph.calls import BRANCHES
from tf_wu_shard.graph.op import Value
from tf_wu_shard.program.called_graph import TracedGraph
from tf_wu_shard.program.compiled_calls import compiled_in
from tf_wu_shard.program.flat_functions import FlatFunctions, WrittenOut
from tf_wu_shard.program.speculation import RunsInVainError

ROWS = np.arange(6, dtype=np.float32).reshape(2, 3) - 2.5

Function = Callable[[tf.Tensor, tf.Tensor], Any]


def written_out(
    function: Function, *, recompiled: bool | None = None
) -> tuple[WrittenOut, Value, list[str]]:
    """A function's nodes, its one result and its arguments' names."""
    graph = (
        tf.function(function)
        .get_concrete_function(tf.TensorSpec((), tf.int32), tf.TensorSpec((2, 3)))
        .graph
    )
    nodes = list(graph.as_graph_def().node)
    result = Value(graph.outputs[0].op.name, graph.outputs[0].value_index)
    chosen = {node.name for node in nodes if node.op in BRANCHES}
    out = FlatFunctions({}, lambda node: None, recompiled=recompiled).write_out(
        nodes, chosen, TracedGraph(graph), (result,)
    )
    return out, out.values.get(result, result), [t.op.name for t in graph.inputs]


def run(out: WrittenOut, result: Value, arguments: list[str], number: int) -> np.ndarray:
    with tf.Graph().as_default() as graph:
        graph_def = tf.compat.v1.GraphDef(node=out.nodes)
        tf.graph_util.import_graph_def(graph_def, name="")
        given = {f"{arguments[0]}:0": number, f"{arguments[1]}:0": ROWS}
        with tf.compat.v1.Session(graph=graph) as session:
            found: np.ndarray = session.run(f"{result.op}:{result.index}", given)
    return found


def one_of_two(number: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    found: tf.Tensor = tf.cond(number > 1, lambda: rows / 0.0, lambda: tf.sqrt(rows))
    return found


def one_of_three(number: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    branches = [lambda: rows + 1.0, lambda: rows * 2.0, lambda: -rows]
    return tf.switch_case(number, branches) * 0.5


def one_of_one(number: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    return tf.switch_case(number, [lambda: rows + 1.0]) * 0.5


def called(number: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """A branch calls a function with a branch in it, which hands on what it was given."""
    inner = tf.function(lambda x: tf.cond(number > 2, lambda: x * 3.0, lambda: x))
    found: tf.Tensor = tf.cond(number > 1, lambda: inner(rows - 1.0), lambda: rows)
    return found


@pytest.mark.parametrize("function", [one_of_two, one_of_three, one_of_one, called])
@pytest.mark.parametrize("number", [-1, 0, 1, 2, 3])
def test_not_a_bit_differs(function: Function, number: int) -> None:
    out, result, arguments = written_out(function)
    expected = tf.function(function)(tf.constant(number), tf.constant(ROWS)).numpy()
    assert run(out, result, arguments, number).tobytes() == expected.tobytes()


@pytest.mark.parametrize("function", [one_of_two, one_of_three, one_of_one, called])
def test_nothing_is_called_and_all_shapes_are_known(function: Function) -> None:
    out, _, _ = written_out(function)
    assert not {node.op for node in out.nodes} & {"If", "StatelessIf", "Case", "StatelessCase"}
    assert not {node.op for node in out.nodes} & {"PartitionedCall", "StatefulPartitionedCall"}
    assert None not in {shape for shapes in out.shapes.values() for shape in shapes}


def test_a_loop_in_a_branch_is_not_written_out() -> None:
    def turned(rows: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        found: tf.Tensor = tf.while_loop(
            lambda x: tf.reduce_sum(x) < 9, lambda x: (x + 1,), (rows,)
        )
        return found[0]

    def looped(number: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        return tf.cond(number > 1, lambda: turned(rows, number), lambda: rows)

    with pytest.raises(RunsInVainError, match="While is not to run"):
        written_out(looped)


def compiled(number: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Each branch calls a function that XLA compiles."""
    inner = tf.function(lambda x: x * 3.0 + number, jit_compile=True)
    found: tf.Tensor = tf.cond(number > 1, lambda: inner(rows - 1.0), lambda: inner(rows))
    return found


def summed(number: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    inner = tf.function(lambda x: x * tf.reduce_sum(x), jit_compile=True)
    found: tf.Tensor = tf.cond(number > 1, lambda: inner(rows), lambda: rows)
    return found


def test_what_xla_compiled_says_in_which_call_of_which_branch() -> None:
    def rows_of(number: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        return compiled(tf.cast(number, tf.float32), rows)

    out, _, _ = written_out(rows_of, recompiled=True)
    added = {compiled_in(node) for node in out.nodes if node.op == "Mul"}
    assert len(added) == 2 and all("/wu_shard_branch_" in call for call in added)
    out, _, _ = written_out(rows_of)
    assert {compiled_in(node) for node in out.nodes} == {""}
    with pytest.raises(RunsInVainError, match="is compiled by XLA in one piece"):
        written_out(rows_of, recompiled=False)


def test_what_xla_compiles_in_one_piece_is_not_written_out() -> None:
    assert written_out(summed)
    with pytest.raises(RunsInVainError, match="is compiled by XLA in one piece"):
        written_out(summed, recompiled=True)
