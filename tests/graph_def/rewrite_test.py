"""GraphDefs whose host finds all that it used, and those that are left as they were, and why."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_wu_shard
from tests.graph_def import programs
from tests.graph_def.programs import Graph, Step, v1
from tf_wu_shard.tensorflow_private.tpu_strategy import tpu_topology


def momentum_step() -> Step:
    return programs.optimizer_step(programs.OPTIMIZERS["momentum"])


@functools.cache
def made() -> Graph:
    return programs.graph(momentum_step())


def changed(change: Callable[[Any], object]) -> Any:
    """The GraphDef of a momentum step after a change of it."""
    graph_def = tf.compat.v1.GraphDef()
    graph_def.CopyFrom(made().graph_def)
    change(graph_def)
    return graph_def


def node_of(graph_def: Any, op_type: str) -> Any:
    return next(node for node in graph_def.node if node.op == op_type)


def reasons(graph_def: Any) -> list[str]:
    """Why nothing was sharded; the GraphDef came back as it was, to the byte."""
    before = graph_def.SerializeToString(deterministic=True)
    rewritten = tf_wu_shard.rewrite_graph_def(graph_def)
    assert rewritten.graph_def is graph_def
    assert graph_def.SerializeToString(deterministic=True) == before
    assert rewritten.report.verdict == "nothing sharded"
    assert not rewritten.variables
    return [variable.reason for variable in rewritten.report.left_alone]


def test_a_graph_is_not_changed_where_it_is_rewritten() -> None:
    graph_def = changed(lambda _: None)
    before = graph_def.SerializeToString(deterministic=True)
    assert tf_wu_shard.rewrite_graph_def(graph_def).graph_def is not graph_def
    assert graph_def.SerializeToString(deterministic=True) == before


HOST_ACCESSES = {"ReadVariableOp", "AssignVariableOp", "VarIsInitializedOp"}


@functools.cache
def rewritten() -> tf_wu_shard.RewrittenGraphDef:
    """A momentum step in shards."""
    return tf_wu_shard.rewrite_graph_def(made().graph_def)


def nodes_of(graph_def: Any) -> dict[str, Any]:
    return {node.name: node for node in graph_def.node}


def test_all_ops_of_the_host_keep_their_names_but_variables_in_shards() -> None:
    old, new = nodes_of(made().graph_def), nodes_of(rewritten().graph_def)
    host = {name for name, node in old.items() if "_tpu_replicate" not in node.attr}
    assert host - new.keys() == {one.name for one in rewritten().variables}
    # Reads and writes of what is in shards are other ops of their names now.
    other = {name for name in host & new.keys() if old[name].op != new[name].op}
    assert {old[name].op for name in other} <= HOST_ACCESSES
    assert all("w" in old[name].input or "w/Momentum" in old[name].input for name in other)


def test_a_variable_in_shards_is_described_by_what_a_program_needs_of_it() -> None:
    weight, slot = rewritten().variables
    assert (weight.name, slot.name) == ("w", "w/Momentum")
    new = nodes_of(rewritten().graph_def)
    for one in (weight, slot):
        assert (one.shape, one.dtype) == ((programs.INPUTS, programs.OUTPUTS), "float32")
        assert one.layout == "tiles 7800/4 pad 392" and one.shard_shape == (16, 128)
        assert len({*one.shards}) == programs.REPLICAS
        for shard in one.shards:
            assert new[shard].op == "VarHandleOp"
            assert [dim.size for dim in new[shard].attr["shape"].shape.dim] == [16, 128]
        assert one.devices == ("",) * programs.REPLICAS
        # Under the name of the op that read the whole variable.
        assert one.value == f"{one.name}/Read/ReadVariableOp:0"
        assert new[f"{one.name}/Read/ReadVariableOp"].op != "ReadVariableOp"
        assert {*one.writers} <= new.keys() and f"{one.name}/Assign" in one.writers


def test_shards_live_where_the_replicas_do() -> None:
    devices = tuple(f"/task:{number}/device:TPU:0" for number in range(programs.REPLICAS))
    found = tf_wu_shard.rewrite_graph_def(made().graph_def, devices=devices)
    new = nodes_of(found.graph_def)
    for one in found.variables:
        assert one.devices == devices
        assert tuple(new[shard].device for shard in one.shards) == devices


def test_a_variable_that_nobody_reads_can_be_fetched_too() -> None:
    def without_reads(graph_def: Any) -> None:
        kept = [n for n in graph_def.node if not n.name.startswith(("save", "w/Momentum/Read"))]
        del graph_def.node[:]
        graph_def.node.extend(kept)

    slot = tf_wu_shard.rewrite_graph_def(changed(without_reads)).variables[1]
    assert slot.name == "w/Momentum" and slot.writers == ("w/Momentum/Assign",)
    with tf.Graph().as_default() as graph:
        found = tf_wu_shard.rewrite_graph_def(changed(without_reads))
        tf.import_graph_def(found.graph_def, name="")
        value = graph.get_tensor_by_name(found.variables[1].value)
    assert value.shape == slot.shape


def test_names_that_the_host_has_taken_are_not_taken_again() -> None:
    taken = rewritten().variables[0].shards[1]
    graph = programs.graph(momentum_step(), lambda: tf.constant(1.0, name=taken))
    found = tf_wu_shard.rewrite_graph_def(graph.graph_def)
    assert nodes_of(found.graph_def)[taken].op == "Const"
    assert taken not in found.variables[0].shards


def test_what_waits_for_a_variable_or_a_part_of_the_program_waits_for_all_that_it_does() -> None:
    def wait() -> None:
        graph = tf.compat.v1.get_default_graph()
        handle = graph.get_operation_by_name("w")
        inside = next(op for op in graph.get_operations() if op.type == "CrossReplicaSum")
        with tf.control_dependencies([handle, inside]):
            tf.constant(1.0, name="waits")

    graph = programs.graph(momentum_step(), wait)
    waits = nodes_of(graph.graph_def)["waits"]
    assert "^w" in waits.input
    found = nodes_of(tf_wu_shard.rewrite_graph_def(graph.graph_def).graph_def)
    controls = [text.removeprefix("^") for text in found["waits"].input]
    assert controls and len({*controls}) == len(controls)
    assert all(name in found for name in controls)


def test_who_wished_to_be_beside_a_variable_in_shards_wishes_nothing() -> None:
    def beside() -> None:
        graph = tf.compat.v1.get_default_graph()
        for name, where in (("lost", "w/Momentum"), ("kept", "b")):
            with v1.colocate_with(graph.get_operation_by_name(where)):
                tf.constant(1.0, name=name)

    found = tf_wu_shard.rewrite_graph_def(programs.graph(momentum_step(), beside).graph_def)
    new = nodes_of(found.graph_def)
    assert [*new["kept"].attr["_class"].list.s] == [b"loc:@b"]
    assert b"loc:@w/Momentum" not in new["lost"].attr["_class"].list.s


def test_a_rewrite_is_reported_under_its_name() -> None:
    tf_wu_shard.clear_reports()
    found = tf_wu_shard.rewrite_graph_def(made().graph_def, name="my graph")
    assert [*tf_wu_shard.reports()] == [found.report]
    assert found.report.headline.startswith("my graph: sharded")
    assert found.report.pass_ms > 0
    with tf.Graph().as_default() as empty:
        tf.constant(1.0)
    none = tf_wu_shard.rewrite_graph_def(empty.as_graph_def(), name="no program")
    assert tf_wu_shard.reports()[-1] == none.report
    assert none.report.headline.startswith("no program: nothing sharded")


def test_a_graph_without_a_tpu_program() -> None:
    with tf.Graph().as_default() as graph:
        tf.constant(1.0)
    (reason,) = reasons(graph.as_graph_def())
    assert reason.startswith("it holds no TPU program")


def test_a_graph_whose_program_reduces_nothing() -> None:
    graph = programs.graph(lambda x, y: tf.reduce_sum(x) + tf.reduce_sum(y), _a_variable)
    assert reasons(graph.graph_def) == [
        "no gradient is summed over the replicas in its TPU program"
    ]


def _a_variable() -> None:
    v1.get_variable("a", [2], use_resource=True)


def test_two_programs() -> None:
    def another() -> None:
        v1.tpu.replicate(lambda: tf.constant(1.0), [[] for _ in range(programs.REPLICAS)])

    (reason,) = reasons(programs.graph(momentum_step(), another).graph_def)
    assert "holds 2 TPU programs" in reason


def test_a_program_inside_of_a_function() -> None:
    @tf.function
    def trained() -> tf.Tensor:
        return v1.tpu.replicate(lambda: tf.constant(1.0), [[], []])[0][0]

    with tf.Graph().as_default() as graph:
        trained()
    (reason,) = reasons(graph.as_graph_def())
    assert "stands inside of function '__inference_trained" in reason


@pytest.mark.parametrize(
    ("spmd", "reason"),
    [(False, "each replica spreads over 2 cores"), (True, "XLA partitions the program itself")],
)
def test_replicas_over_two_cores(spmd: bool, reason: str) -> None:
    coordinates = [(x, y, 0, 0) for x in range(4) for y in range(2)]
    assignment = tf.tpu.experimental.DeviceAssignment(
        tpu_topology((4, 2, 1), coordinates), np.array(coordinates, np.int32).reshape((4, 2, 4))
    )
    options = v1.tpu.XLAOptions(use_spmd_for_xla_partitioning=spmd)
    graph = programs.graph(momentum_step(), device_assignment=assignment, xla_options=options)
    (found,) = reasons(graph.graph_def)
    assert found.startswith(reason)


def test_outside_compilation() -> None:
    inner = momentum_step()

    def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return v1.tpu.outside_compilation(tf.identity, inner(x, y))

    (reason,) = reasons(programs.graph(step).graph_def)
    assert reason.endswith("runs on the host (outside compilation)")


def test_tpu_embeddings() -> None:
    def embed(graph_def: Any) -> None:
        graph_def.node.add(name="tables", op="ConfigureTPUEmbeddingHost")

    with pytest.raises(tf_wu_shard.GraphDefError):
        # TensorFlow knows the op, and that this one lacks its input.
        tf_wu_shard.rewrite_graph_def(changed(embed))

    def load() -> None:
        tf.raw_ops.LoadTPUEmbeddingStochasticGradientDescentParameters(
            parameters=tf.zeros([2, 2]), num_shards=1, shard_id=0, table_name="t"
        )

    (reason,) = reasons(programs.graph(momentum_step(), load).graph_def)
    assert reason.startswith("it uses TPU embeddings (LoadTPUEmbedding")


def in_a_loop() -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """A step whose update runs three times."""
    inner = momentum_step()

    def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        def body(i: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return i + 1, inner(x, y)

        return tf.while_loop(lambda i, _: i < 3, body, [0, 0.0])[1]

    return step


def test_an_update_in_a_loop() -> None:
    step = in_a_loop()
    for reason in reasons(programs.graph(step).graph_def):
        assert "runs inside of While, a branch, a loop" in reason


def test_an_update_in_a_loop_of_tensorflow_1() -> None:
    step = in_a_loop()
    v1.disable_control_flow_v2()
    try:
        graph = programs.graph(step)
    finally:
        v1.enable_control_flow_v2()
    (reason,) = reasons(graph.graph_def)
    assert reason.startswith("it holds a loop of TensorFlow 1 (Enter ")


def test_a_slot_that_the_host_changes() -> None:
    def decay() -> None:
        slot = next(v for v in v1.global_variables() if v.op.name == "w/Momentum")
        slot.assign_sub(slot * 0.1, name="decay")

    graph = programs.graph(momentum_step(), decay)
    assert reasons(graph.graph_def)[0] == (
        "its slot w/Momentum is used outside of the TPU program by decay (AssignSubVariableOp)"
    )


def test_two_names_of_one_variable() -> None:
    def again() -> None:
        tf.raw_ops.VarHandleOp(
            dtype=tf.float32,
            shape=[programs.INPUTS, programs.OUTPUTS],
            shared_name="w/Momentum",
            name="twin",
        )

    graph = programs.graph(momentum_step(), again)
    assert reasons(graph.graph_def)[0].endswith("is the same variable as twin")


def test_a_learning_rate_of_each_replica_alone() -> None:
    def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        own = tf.reduce_sum(tf.abs(x))
        return programs.optimizer_step(lambda: v1.train.GradientDescentOptimizer(own))(x, y)

    assert "each replica computes it from an input of its own" in reasons(
        programs.graph(step).graph_def
    )


def test_nothing_sharded_raises_where_it_is_to() -> None:
    options = tf_wu_shard.ShardingOptions(on_refusal="raise", min_elements=10**9)
    with pytest.raises(tf_wu_shard.NothingShardedError, match="below min_elements"):
        tf_wu_shard.rewrite_graph_def(made().graph_def, options)


def _lose_an_op(graph_def: Any) -> None:
    del graph_def.node[3]


def _unknown_op(graph_def: Any) -> None:
    graph_def.node[3].op = "NoSuchOp"


def _unknown_dtype(graph_def: Any) -> None:
    node_of(graph_def, "CrossReplicaSum").attr["T"].type = 99


def _two_of_a_name(graph_def: Any) -> None:
    graph_def.node.add().CopyFrom(graph_def.node[3])


@pytest.mark.parametrize("change", [_lose_an_op, _unknown_op, _unknown_dtype, _two_of_a_name])
def test_a_graph_that_tensorflow_does_not_take(change: Callable[[Any], object]) -> None:
    with pytest.raises(tf_wu_shard.GraphDefError, match="does not take the GraphDef: "):
        tf_wu_shard.rewrite_graph_def(changed(change))


@pytest.mark.parametrize("given", [None, b"bytes", "graph.pb", tf.Graph()])
def test_what_is_no_graph_def(given: Any) -> None:
    with pytest.raises(tf_wu_shard.GraphDefError, match="takes a GraphDef, not "):
        tf_wu_shard.rewrite_graph_def(given)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("options", True, "must be a ShardingOptions"),
        ("devices", ["/device:TPU:0"], "of each of the 4 replicas"),
        ("devices", ["nowhere:at:all"] * 4, "names no device"),
        ("device_assignment", "v5e:2x2", "must be a tf.tpu.experimental.DeviceAssignment"),
        (
            "device_assignment",
            programs.assignment("v5e:2x4"),
            "places 8 replicas of 1 cores; .* has 4 of 1",
        ),
    ],
)
def test_options_that_do_not_fit(option: str, value: Any, message: str) -> None:
    with pytest.raises(tf_wu_shard.OptionError, match=message):
        tf_wu_shard.rewrite_graph_def(made().graph_def, **{option: value})
