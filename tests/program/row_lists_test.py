"""What is made of lists of rows is told from what is not, and none of their entries is handed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tf_wu_shard.program.called_graph import TracedGraph
from tf_wu_shard.program.row_lists import RowLists, Select, all_or_none

ROWS, VALUES = tf.TensorSpec([None], tf.int64, "rows"), tf.TensorSpec([None, 3], name="values")
DENSE = tf.TensorSpec([5, 3], name="dense")

Branch = Callable[[Any, tf.Tensor, tf.Tensor, tf.Tensor], Any]


def found(branch: Branch, *specs: tf.TensorSpec) -> tuple[RowLists, set[str]]:
    """What is made of lists in a branch, and the types of the ops that must not run on none."""
    table = tf.Variable(tf.zeros((5, 3)))
    taken = specs or (ROWS, VALUES, DENSE)
    function = tf.function(lambda *given: branch(table, *given)).get_concrete_function(*taken)
    nodes = function.graph.as_graph_def().node
    names = {spec.name for spec in taken}
    lists = RowLists(nodes, names, TracedGraph(function.graph).static_shape)
    return lists, {node.op for node in nodes if lists.must_not(node)}


def scattered(table: Any, rows: tf.Tensor, values: tf.Tensor, dense: tf.Tensor) -> None:
    table.assign_sub(dense)
    table.scatter_sub(tf.IndexedSlices(values * 0.1, rows))


def once(table: Any, rows: tf.Tensor, values: tf.Tensor, dense: tf.Tensor) -> None:
    named, places = tf.unique(rows)
    own = tf.math.unsorted_segment_sum(values, places, tf.shape(named)[0])
    own = own / tf.maximum(1.0, tf.norm(own))
    table.scatter_add(tf.IndexedSlices(own * tf.gather(dense, named), named))


def made_dense(table: Any, rows: tf.Tensor, values: tf.Tensor, dense: tf.Tensor) -> None:
    total = tf.math.unsorted_segment_sum(values, rows, 5)
    table.assign_sub(tf.square(total) * dense)


def normed(table: Any, rows: tf.Tensor, values: tf.Tensor, dense: tf.Tensor) -> None:
    total = tf.math.unsorted_segment_sum(values, rows, 5)
    own = total / tf.reduce_max(tf.abs(total))
    tf.raw_ops.ResourceApplyGradientDescent(var=table.handle, alpha=0.1, delta=own)


def looked_up(table: Any, rows: tf.Tensor, values: tf.Tensor, dense: tf.Tensor) -> None:
    table.scatter_sub(tf.IndexedSlices(values / table.sparse_read(rows), rows))


def looked_up_after_a_write(
    table: Any, rows: tf.Tensor, values: tf.Tensor, dense: tf.Tensor
) -> None:
    table.assign_sub(dense)
    looked_up(table, rows, values, dense)


def fused(table: Any, rows: tf.Tensor, values: tf.Tensor, dense: tf.Tensor) -> None:
    tf.raw_ops.ResourceSparseApplyKerasMomentum(
        var=table.handle, accum=table.handle, lr=0.1, grad=values, indices=rows, momentum=0.9
    )


@pytest.mark.parametrize(
    "branch", [scattered, once, made_dense, normed, looked_up, looked_up_after_a_write, fused]
)
def test_lists_are_the_rows_and_values_and_all_that_is_made_of_them(branch: Branch) -> None:
    lists, others = found(branch)
    assert lists.arguments == {"rows", "values"} and not others


def cumulated(table: Any, rows: tf.Tensor, values: tf.Tensor, dense: tf.Tensor) -> None:
    table.scatter_sub(tf.IndexedSlices(tf.cumsum(values), rows))


def of_each_column(table: Any, rows: tf.Tensor, values: tf.Tensor, dense: tf.Tensor) -> None:
    table.scatter_sub(tf.IndexedSlices(values * tf.reduce_sum(dense, 0), rows))


def of_its_columns(table: Any, rows: tf.Tensor, values: tf.Tensor, dense: tf.Tensor) -> None:
    table.scatter_sub(tf.IndexedSlices(values / tf.reduce_max(values, 0), rows))


def the_second(table: Any, rows: tf.Tensor, values: tf.Tensor, dense: tf.Tensor) -> None:
    table.scatter_sub(tf.IndexedSlices(values * values[1, 1], rows))


def one_number(table: Any, rows: tf.Tensor, values: tf.Tensor, dense: tf.Tensor) -> None:
    table.scatter_sub(tf.IndexedSlices(tf.constant(0.5), rows))


@pytest.mark.parametrize(
    ("branch", "op_type"),
    [
        (cumulated, "Cumsum"),
        (of_each_column, "ResourceScatterSub"),
        (of_its_columns, "ResourceScatterSub"),
        (the_second, "StridedSlice"),
        (one_number, "ResourceScatterSub"),
    ],
)
def test_what_may_fail_on_no_entries_or_needs_them_must_not(branch: Branch, op_type: str) -> None:
    _, others = found(branch)
    assert op_type in others


def test_a_dense_gradient_that_rows_depend_on_by_a_number_is_no_list() -> None:
    def clipped(table: Any, rows: tf.Tensor, values: tf.Tensor, dense: tf.Tensor) -> None:
        norm = tf.linalg.global_norm([values, dense])
        table.assign_sub(dense / norm)
        table.scatter_sub(tf.IndexedSlices(values / norm, rows))

    lists, others = found(clipped)
    assert lists.arguments == {"rows", "values"} and not others


def test_what_is_used_as_a_tensor_too_is_no_list() -> None:
    of_table = tf.TensorSpec([5, 3], name="values")
    rows = tf.TensorSpec([5], tf.int64, "rows")

    def both(table: Any, rows: tf.Tensor, values: tf.Tensor, dense: tf.Tensor) -> None:
        table.assign_sub(values * dense)
        table.scatter_sub(tf.IndexedSlices(values, rows))

    lists, others = found(both, rows, of_table, DENSE)
    assert "values" not in lists.arguments and others == {"ResourceScatterSub"}


@pytest.mark.parametrize("is_taken", [True, False])
@pytest.mark.parametrize("test", [True, False])
def test_a_branch_gets_all_where_it_is_taken_and_none_where_not(is_taken: bool, test: bool) -> None:
    select = Select("branch", "test", is_taken)
    nodes, handed = all_or_none("lists", select, {"rows": tf.int64.as_datatype_enum})
    with tf.Graph().as_default() as graph:
        tf.compat.v1.placeholder(tf.bool, (), "test")
        tf.compat.v1.placeholder(tf.int64, None, "rows")
        given = graph.as_graph_def()
        given.node.extend(nodes)
    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(given, name="")
        with tf.compat.v1.Session(graph=graph) as session:
            feed = {"test:0": test, "rows:0": [[3, 4], [5, 6]]}
            rows = session.run(f"{handed['rows']}:0", feed)
    assert rows.tolist() == ([[3, 4], [5, 6]] if test == is_taken else [])
