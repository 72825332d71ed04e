"""A step that ends because its data ended changes nothing, as a program that never started."""

from __future__ import annotations

import tensorflow as tf

from tf_wu_shard.emulation.arrival import wait_for_inputs
from tf_wu_shard.emulation.clones import Clones, replicas_on


def test_what_takes_nothing_of_the_program_waits_for_its_inputs() -> None:
    clones = Clones({}, replicas_on(["d0", "d1"]), lambda name: (name,), {})
    clones.add("Const", "replica_0/one", (), "d0")
    clones.add("AssignAddVariableOp", "replica_0/count", ["handle", "replica_0/one:output:0"], "d0")
    clones.add("Neg", "replica_0/neg", ["next:components:0"], "d0")
    around = {"next": tf.compat.v1.NodeDef(name="next", op="IteratorGetNext")}
    wait_for_inputs(clones, [["next:components:0"], ["handle"]], around, "cluster")
    one, count, neg, ready = clones.nodes
    assert (ready.op, list(ready.input)) == ("NoOp", ["^next"])
    assert list(one.input) == [f"^{ready.name}"]
    assert list(count.input) == ["handle", "replica_0/one:output:0"]
    assert list(neg.input) == ["next:components:0", f"^{ready.name}"]


def test_a_program_of_arguments_alone_waits_for_nothing() -> None:
    clones = Clones({}, replicas_on(["d0"]), lambda name: (name,), {})
    clones.add("Const", "replica_0/one", (), "d0")
    wait_for_inputs(clones, [["batch"]], {}, "cluster")
    assert [list(node.input) for node in clones.nodes] == [[]]
