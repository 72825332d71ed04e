"""A diff of two graphs shows what changes where it belongs, and leaves out nothing of it."""

from __future__ import annotations

import tensorflow as tf

from tests.graph.tracing import bare_view
from tf_wu_shard.graph.text import op_text
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.inspection.answers.graph_diff import GraphDiff, graph_diff


def view_of(*ops: str) -> GraphView:
    """A graph of ops of one result, each as `name: inputs`."""
    graph_def = tf.compat.v1.GraphDef()
    for op in ops:
        name, _, inputs = op.partition(":")
        node = graph_def.node.add(name=name, op="AddN" if inputs else "Placeholder")
        node.input.extend(inputs.split())
        node.attr["T" if inputs else "dtype"].type = 1
        if inputs:
            node.attr["N"].i = sum(not text.startswith("^") for text in inputs.split())
    return bare_view(graph_def)


def names(diff: GraphDiff) -> list[str]:
    """The lines without what follows the name."""
    return [line if line[0] == "@" else line.partition(" = ")[0] for line in diff.lines]


CHAIN = tuple(f"n{i}: n{i - 1}" if i else "n0" for i in range(20))


def test_graphs_that_are_equal_have_no_lines() -> None:
    diff = graph_diff(view_of(*CHAIN), view_of(*CHAIN), "one", {})
    assert diff == GraphDiff("one")


def test_what_is_new_stands_behind_what_it_waits_for() -> None:
    after = (*CHAIN[:10], "late", "new: n9 late", "n10: new", *CHAIN[11:])
    # In a file the nodes may stand in any order.
    diff = graph_diff(view_of(*CHAIN), view_of(*reversed(after)), "", {})
    assert (diff.added, diff.removed, diff.changed) == (2, 0, 1)
    assert names(diff) == [
        "@@ -8,7 +8,9 @@",
        *(" n7", " n8", " n9"),
        *("+late", "+new", "-n10", "+n10"),
        *(" n11", " n12", " n13"),
    ]


def test_changes_far_apart_have_hunks_of_their_own() -> None:
    after = ("n0", "n1: n0 n0", *CHAIN[2:18], "n19: n17")
    diff = graph_diff(view_of(*CHAIN), view_of(*after), "", {})
    assert (diff.added, diff.removed, diff.changed) == (0, 1, 2)
    assert [line for line in diff.lines if line[0] == "@"] == [
        "@@ -1,5 +1,5 @@",
        "@@ -16,5 +16,4 @@",
    ]


def test_a_diff_holds_both_graphs_where_they_differ() -> None:
    before, after = (
        view_of(*CHAIN),
        view_of("x", "n0", *(f"n{i}: n{i - 1} x" for i in range(1, 20))),
    )
    diff = graph_diff(before, after, "", {})
    for view, mark in ((before, "-"), (after, "+")):
        lines = {op_text(view, op, view.shape, {}) for op in view}
        assert {line[1:] for line in diff.lines if line[0] in (mark, " ")} == lines


def test_a_large_graph_takes_one_walk() -> None:
    chain = [f"n{i}: n{i - 1}" if i else "n0" for i in range(20_000)]
    after = [*chain[:-1], "m", "n19999: n19998 m"]
    diff = graph_diff(view_of(*chain), view_of(*after), "", {})
    assert len(diff.lines) == 7
