"""What a step does to slots in shards beside its updates is done to the shards, or refused."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

from tests.weight_update.rewrite.raw_steps import DEVICES
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.errors import StorageError
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView, VariableRef
from tf_wu_shard.layout import flat_layout
from tf_wu_shard.step.capture import Captured
from tf_wu_shard.step.step import Step
from tf_wu_shard.storage import captured_slots
from tf_wu_shard.tensorflow_private import function_graph, xla_contexts
from tf_wu_shard.weight_update import redirection as redirection_module
from tf_wu_shard.weight_update.nested_updates import NestedUpdates
from tf_wu_shard.weight_update.redirection import Redirection, redirection
from tf_wu_shard.weight_update.stages import Outcome

# A slot that lives in two shards, 16 elements and 4.
SLOT: Any = SimpleNamespace(
    layout=flat_layout((20,), 2, 4),
    shards=tuple(SimpleNamespace(device=device) for device in DEVICES),
    handles=("shard0", "shard1"),
    write_counts=None,
)
HANDLE, VECTOR = tf.TensorSpec((), tf.resource), tf.TensorSpec((20,), tf.float32)

# What a function does with the handles of both components, and with a value of each replica.
Body = Callable[[list[Any], list[Any]], Any]


def reading(handles: list[Any], own: list[Any]) -> Any:
    del own
    with tf.device(DEVICES[0]):
        return tf.abs(tf.raw_ops.ReadVariableOp(resource=handles[0], dtype=tf.float32))


def write(handles: list[Any], values: list[Any]) -> None:
    for handle, value, device in zip(handles, values, DEVICES, strict=True):
        with tf.device(device):
            tf.raw_ops.AssignVariableOp(resource=handle, value=value)


def same(handles: list[Any], own: list[Any]) -> None:
    write(handles, [own[0], own[0]])


def apart(handles: list[Any], own: list[Any]) -> None:
    with tf.device(DEVICES[0]):
        first = tf.square(own[0])
    with tf.device(DEVICES[1]):
        write(handles, [first, tf.square(own[1])])


def step_of(body: Body) -> Step:
    """A function that is handed the components of a slot."""

    def traced(first: Any, second: Any, one: Any, other: Any) -> Any:
        return body([first, second], [one, other])

    function = tf.function(traced, autograph=False)
    graph = function.get_concrete_function(HANDLE, HANDLE, VECTOR, VECTOR).graph
    names = [tensor.op.name for tensor in graph.inputs[:2]]
    refs = {
        name: VariableRef("m", replica, 2, (20,), tf.float32.as_datatype_enum, True, device)
        for replica, (name, device) in enumerate(zip(names, DEVICES, strict=True))
    }
    view = GraphView(
        graph.as_graph_def(add_shapes=True),
        variables=refs,
        outputs=[Value(tensor.op.name, tensor.value_index) for tensor in graph.outputs],
        control_outputs=[op.name for op in graph.control_outputs],
        op_def=function_graph.op_def,
    )
    none: Any = None
    return Step(graph, Captured(view, {}, functions={"made": "function"}), none)


def redirected(step: Step, options: ShardingOptions | None = None) -> Redirection:
    return redirection(step, Outcome(NestedUpdates(step.captured)), options, {})


@pytest.fixture
def in_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slot lives in shards."""
    monkeypatch.setattr(captured_slots, "slots_in_shards", lambda captured: {"m": SLOT})


def nodes_of(found: Redirection) -> dict[str, Any]:
    assert found.new is not None
    return {node.name: node for node in found.new.nodes}


def behind(nodes: dict[str, Any], name: str) -> set[str]:
    """All that a value is made of."""
    sources = {text.partition(":")[0] for text in nodes[name].input if text[0] != "^"}
    return sources.union(*(behind(nodes, source) for source in sources))


def test_a_step_that_uses_nothing_in_shards_stays_as_it_is() -> None:
    found = redirected(step_of(reading))
    assert (found.slots, found.new, found.owners) == ({}, None, ())
    assert found.functions == {"made": "function"}


@pytest.mark.usefixtures("in_shards")
def test_a_read_is_of_all_shards() -> None:
    step = step_of(reading)
    found = redirected(step)
    assert found.slots == {"m": SLOT} and found.owners == () and found.new is not None
    assert [(i.slot, i.replica) for i in found.new.shard_inputs] == [("m", 0), ("m", 1)]
    handles = {added.placeholder for added in found.new.shard_inputs}
    nodes, (output,) = nodes_of(found), found.new.outputs
    assert handles <= behind(nodes, output.op)
    assert behind(nodes, output.op).isdisjoint(step.view.variables)


@pytest.mark.usefixtures("in_shards")
def test_a_write_of_all_copies_is_one_of_each_shard() -> None:
    found = redirected(step_of(same))
    nodes = nodes_of(found)
    writes = [node for node in nodes.values() if node.op == "AssignVariableOp"]
    assert found.new is not None
    assert [n.input[0] for n in writes] == [i.placeholder for i in found.new.shard_inputs]
    sizes = [nodes[nodes[n.input[1]].input[2]].attr["value"].tensor for n in writes]
    assert [tf.make_ndarray(size).tolist() for size in sizes] == [[16], [4]]
    assert {node.name for node in writes} <= {*found.new.control_outputs}


@pytest.mark.usefixtures("in_shards")
def test_copies_that_would_differ_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    step = step_of(apart)
    with pytest.raises(StorageError, match=r"writes slot 'm'.* so that copies would differ"):
        redirected(step)
    # A branch takes what the function around it has summed.
    monkeypatch.setattr(
        redirection_module, "own_inputs", lambda *given, **named: lambda inputs, copies: {}
    )
    assert redirected(step).new is not None


@pytest.mark.usefixtures("in_shards")
def test_what_xla_compiles_as_a_whole_reaches_no_other_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step = step_of(reading)
    monkeypatch.setattr(xla_contexts, "is_compiled", lambda graph, types: True)
    with pytest.raises(StorageError, match=r"jit_compile=True\), and slot 'm'"):
        redirected(step)
    # Nothing of it is in shards.
    monkeypatch.setattr(captured_slots, "slots_in_shards", lambda captured: {})
    assert redirected(step).new is None


@pytest.mark.usefixtures("in_shards")
def test_shards_are_put_together_in_the_way_that_the_user_asked_for() -> None:
    ways = [redirected(step_of(reading), ShardingOptions(dialect=d)) for d in ("auto", "reference")]
    made = [
        {node.device for node in nodes_of(found).values() if node.op == "ConcatV2"}
        for found in ways
    ]
    # The plainest way has each replica put it together for itself.
    assert made == [{DEVICES[0]}, {*DEVICES}]
