"""What is left of a graph keeps its purpose and its order, whatever was taken out of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import tensorflow as tf

from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.op import Value, parse_value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.tensorflow_private import function_graph
from tf_wu_shard.weight_update.rewrite.graph_edit import GraphEdit

# Nothing of it is sharded.
PLAN: Any = SimpleNamespace(reductions=(), variables=())


def step() -> None:
    """Two writes of a variable, and what waits for them."""
    handle = tf.compat.v1.placeholder(tf.resource, [], "handle")
    gradient = tf.compat.v1.placeholder(tf.float32, [4], "gradient")
    unused = tf.compat.v1.placeholder(tf.float32, [4], "unused")
    packed = tf.square(gradient, name="packed")
    first = tf.raw_ops.AssignVariableOp(resource=handle, value=packed, name="first")
    with tf.control_dependencies([first]):
        read = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32, name="read")
        shown = tf.abs(read, name="shown")
    with tf.control_dependencies([read, unused]):
        last = tf.raw_ops.AssignVariableOp(resource=handle, value=gradient, name="last")
    with tf.control_dependencies([last]):
        both = tf.raw_ops.IdentityN(input=[packed, shown], name="both")
        tf.negative(both[1], name="end")


class Edited:
    """The graph of `step`, of which something was taken out."""

    def __init__(
        self,
        edit: Callable[[GraphEdit, GraphBuilder], None],
        outputs: Sequence[str] = ("end",),
        controls: Sequence[str] = ("first", "last"),
    ) -> None:
        with tf.Graph().as_default() as graph:
            step()
        view = GraphView(
            graph.as_graph_def(add_shapes=True),
            variables={},
            outputs=[parse_value(text) for text in outputs],
            control_outputs=controls,
            op_def=function_graph.op_def,
        )
        builder = GraphBuilder(view.ops, view.dtype)
        changing = GraphEdit(view, PLAN, builder)
        edit(changing, builder)
        kept, self.controls, self.outputs = changing.collect()
        self.inputs = {node.name: [*node.input] for node in (*kept, *builder.nodes)}
        self.kept = {node.name for node in kept}
        self.source = graph.as_graph_def()

    def check_edges(self) -> None:
        """Fails where an op takes, or waits for, what is not there."""
        assert all(
            text.lstrip("^").partition(":")[0] in self.inputs
            for inputs in self.inputs.values()
            for text in inputs
        )


def nothing(edit: GraphEdit, builder: GraphBuilder) -> None:
    """Takes nothing out."""


def test_with_nothing_taken_out_all_that_is_live_stays_as_it_was() -> None:
    found = Edited(nothing)
    # An input is there before anything runs: nobody waits for one.
    expected = {n.name: [i for i in n.input if i != "^unused"] for n in found.source.node}
    assert found.inputs == expected
    assert found.controls == ("first", "last") and found.outputs == (Value("end"),)


def test_inputs_stay_though_nobody_looks_at_them_and_the_rest_goes() -> None:
    found = Edited(nothing, outputs=("gradient",), controls=("first",))
    # The last write has an effect, and so it is needed like those that are named.
    assert {"unused", "gradient", "handle", "packed", "first", "last", "read"} <= found.kept
    assert not {"shown", "both", "end"} & found.kept


def test_what_waited_for_a_replaced_op_waits_for_what_took_its_place() -> None:
    def edit(changing: GraphEdit, builder: GraphBuilder) -> None:
        at = builder.at("", "new")
        write = at.op("AssignVariableOp", [Value("handle"), Value("gradient")], "", dtype=1)
        changing.replace_ops({"first": [write.op]})
        assert changing.taken_places == {"new": ["first"]}

    found = Edited(edit)
    assert "first" not in found.inputs
    assert found.inputs["read"] == ["handle", "^new"]
    assert found.controls == ("new", "last")
    found.check_edges()


def test_what_waited_for_an_op_that_is_dropped_waits_for_what_that_waited_for() -> None:
    found = Edited(lambda changing, _: changing.replace_ops({"last": []}), controls=("last",))
    assert found.inputs["both"] == ["packed", "shown", "^read"]
    assert found.controls == ("read",)
    found.check_edges()


def test_readers_of_a_value_read_what_takes_its_place_and_what_made_it_goes() -> None:
    def edit(changing: GraphEdit, builder: GraphBuilder) -> None:
        at = builder.at("", "")
        changing.replace_value(Value("packed"), at.op("Abs", [Value("gradient")], "instead"))

    found = Edited(edit, outputs=("end", "packed"))
    assert "packed" not in found.inputs
    assert found.inputs["first"] == ["handle", "instead"]
    assert found.inputs["both"][0] == "instead"
    assert found.outputs == (Value("end"), Value("instead"))
    found.check_edges()


def test_what_stands_beside_a_value_that_goes_is_passed_on_by_itself() -> None:
    def edit(changing: GraphEdit, builder: GraphBuilder) -> None:
        new = builder.at("", "").op("NoOp", [], "new")
        changing.replace_ops({"packed": [new.op], "first": [new.op]})

    found = Edited(edit, controls=("last",))
    assert found.inputs["end"] == ["shown"]
    assert not {"packed", "first", "both"} & found.inputs.keys()
    found.check_edges()


def test_new_ops_are_led_away_from_what_they_took_the_place_of() -> None:
    def edit(changing: GraphEdit, builder: GraphBuilder) -> None:
        at = builder.at("", "")
        new = at.op("NoOp", [], "new")
        at.op("Neg", [Value("packed")], "late", controls=["first", "gradient"])
        changing.replace_ops({"first": [new.op]})
        changing.replace_value(Value("packed"), Value("gradient"))

    found = Edited(edit)
    assert found.inputs["late"] == ["gradient", "^new"]
    found.check_edges()
