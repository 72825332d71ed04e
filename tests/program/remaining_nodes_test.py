"""What stands around a branch op is changed where it takes the op's results, and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView, VariableRef
from tf_wu_shard.program.remaining_nodes import Following, RemainingNodes, only_waiting
from tf_wu_shard.tensorflow_private import function_graph

HANDLE = VariableRef("w", 0, 1, (4,), 1, True, "", True)


def view_of(nodes: Sequence[tuple[str, str, str]], controls: Sequence[str]) -> GraphView:
    """A view of nodes, `(name, type, inputs)` each, of which some must run."""
    made = [tf.compat.v1.NodeDef(name=n, op=op, input=inputs.split()) for n, op, inputs in nodes]
    return GraphView(
        tf.compat.v1.GraphDef(node=made),
        variables={"w": HANDLE},
        outputs=(),
        control_outputs=controls,
        op_def=function_graph.op_def,
    )


def new(name: str, op: str) -> tf.compat.v1.NodeDef:
    return tf.compat.v1.NodeDef(name=name, op=op)


def inputs(nodes: RemainingNodes, name: str) -> list[str]:
    return [*nodes.by_name[name].input]


BRANCH = [("w", "Placeholder", ""), ("go", "Placeholder", ""), ("branch", "If", "go w")]


def test_what_nobody_needs_goes_and_what_is_taken_takes_other_values() -> None:
    view = view_of(
        [
            *BRANCH,
            ("named", "Identity", "branch"),
            ("idle", "Identity", "branch"),
            ("read", "ReadVariableOp", "w ^branch"),
            ("put", "AssignVariableOp", "w read ^named"),
            ("effect", "PrintV2", "named"),
        ],
        ("put", "effect"),
    )
    nodes, op = RemainingNodes(view, Following(view)), view.ops["branch"]
    assert nodes.taken_of(op) == [Value("branch")]
    instead = [new("branch", "NoOp"), new("chosen", "SelectV2")]
    nodes.replace(op, instead, {Value("branch"): Value("chosen")}, effects_wait=True)
    assert "idle" not in nodes.by_name
    assert [*nodes.by_name][-2:] == ["branch", "chosen"]
    assert inputs(nodes, "named") == ["chosen"]
    assert inputs(nodes, "effect") == ["named", "^branch"]
    # Accesses of the variable wait for its own writes.
    assert inputs(nodes, "put") == ["w", "read", "^named"]
    assert view.ops["named"].node.input == ["branch"]


def test_of_a_value_that_is_only_waited_for_the_end_alone_matters() -> None:
    waited = [("named", "Identity", "branch"), ("again", "Identity", "named")]
    view = view_of([*BRANCH, *waited, ("group", "NoOp", "^again")], ("group",))
    nodes, op = RemainingNodes(view, Following(view)), view.ops["branch"]
    assert nodes.taken_of(op) == []
    nodes.replace(op, [new("branch", "NoOp")], {}, effects_wait=False)
    assert [nodes.by_name[name].op for name in ("named", "again")] == ["NoOp", "NoOp"]
    assert inputs(nodes, "named") == ["^branch"]
    assert inputs(nodes, "again") == ["^named"]


def test_who_only_waits_stays_in_its_program() -> None:
    node = tf.compat.v1.NodeDef(name="a", op="Add", device="d", input=["x", "y:1"])
    node.attr["_tpu_replicate"].s = b"cluster"
    made = only_waiting(node, ["x", "^x", "y"])
    assert (made.name, made.op, made.device, [*made.input]) == ("a", "NoOp", "d", ["^x", "^y"])
    assert made.attr["_tpu_replicate"].s == b"cluster" and node.op == "Add"
