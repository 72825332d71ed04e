"""A function of handles becomes one of values: once for the same variables, with what it writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tests.graph.tracing import weight_and_slot
from tf_wu_shard.graph.op import Op
from tf_wu_shard.program.called_graph import TracedGraph
from tf_wu_shard.program.lifting import HandleNeededError
from tf_wu_shard.program.specialise import Specialiser
from tf_wu_shard.step.capture import Captured, capture

Strategies = Callable[[int], tf.distribute.MirroredStrategy]
Variables = tuple[tf.Variable, tf.Variable]


@pytest.fixture
def pair(strategy_of: Strategies) -> Variables:
    """A weight and its momentum, (5, 7) each, on two replicas."""
    return weight_and_slot(strategy_of(2))


class Calling:
    """A traced function that calls another, of an argument (5, 7)."""

    def __init__(self, called: Callable[[tf.Tensor], Any]) -> None:
        self._called = tf.function(called, autograph=False)
        function = tf.function(
            lambda x: self._called(x), autograph=False, input_signature=[tf.TensorSpec((5, 7))]
        )
        self.graph: Any = function.get_concrete_function().graph
        self.captured: Captured = capture(self.graph)
        view = self.captured.view
        self.call: Op = next(op for op in view if "PartitionedCall" in op.type)
        self.name = self.call.attribute("f").func.name
        self.handles = {
            slot: view.variables[value.op]
            for slot, value in enumerate(self.call.inputs)
            if value.op in view.variables
        }

    def specialiser(self) -> Specialiser:
        return Specialiser(TracedGraph(self.graph), self.captured)


def ops(specialiser: Specialiser, name: str) -> list[str]:
    """The types of the ops of a function that was made."""
    return [node.op for node in specialiser.functions[name].definition.node_def]


def arguments(specialiser: Specialiser, name: str) -> list[tf.DType]:
    signature = specialiser.functions[name].definition.signature
    return [tf.as_dtype(argument.type) for argument in signature.input_arg]


def test_what_only_reads_takes_values_and_is_made_once(pair: Variables) -> None:
    weight = pair[0].values[0]
    calling = Calling(lambda x: x * weight)
    specialiser = calling.specialiser()
    made = specialiser.reading(calling.name, calling.handles, ())
    assert made != calling.name
    assert arguments(specialiser, made) == [tf.float32, tf.float32]
    assert "ReadVariableOp" not in ops(specialiser, made)
    assert specialiser.reading(calling.name, calling.handles, ()) == made
    assert len(specialiser.functions) == 1
    # What it returns besides makes it another one.
    (number,) = calling.handles
    assert specialiser.reading(calling.name, calling.handles, (number,)) != made


def test_what_writes_returns_what_the_variable_is_given(pair: Variables) -> None:
    weight = pair[0].values[0]

    def doubled(x: tf.Tensor) -> tf.Tensor:
        weight.assign(weight * 2.0)
        return weight + x

    calling = Calling(doubled)
    specialiser = calling.specialiser()
    (number,) = calling.handles
    made = specialiser.writing(calling.name, calling.handles, (number,))
    function = specialiser.functions[made]
    assert "AssignVariableOp" not in ops(specialiser, made)
    assert [tf.as_dtype(r.type) for r in function.definition.signature.output_arg] == [
        tf.float32,
        tf.float32,
    ]
    # Called with values, it computes both.
    given: list[Any] = [tf.fill((5, 7), 1.0)] * 2
    given[number] = tf.fill((5, 7), 3.0)
    result, left = function(*given)
    assert (left.numpy() == 6.0).all() and (result.numpy() == 7.0).all()


def test_a_function_that_another_calls_is_made_too(pair: Variables) -> None:
    weight = pair[0].values[0]
    scaled = tf.function(lambda x: x * weight, autograph=False)
    calling = Calling(lambda x: scaled(x) + 1.0)
    specialiser = calling.specialiser()
    outer = specialiser.reading(calling.name, calling.handles, ())
    (inner,) = specialiser.functions.keys() - {outer}
    (call,) = (
        node for node in specialiser.functions[outer].definition.node_def if "Call" in node.op
    )
    assert call.attr["f"].func.name == inner
    assert arguments(specialiser, inner) == [tf.float32, tf.float32]


def test_of_several_variables_those_are_told_that_are_used_and_written(pair: Variables) -> None:
    weight, slot = (variable.values[0] for variable in pair)

    def step(x: tf.Tensor) -> tf.Tensor:
        slot.assign_add(weight * x)
        return x

    calling = Calling(step)
    specialiser = calling.specialiser()
    used, written = specialiser.used_and_written(calling.call.node, calling.handles)
    assert {ref.key for ref in used.values()} == {"weight", "momentum"}
    assert [calling.handles[slot].key for slot in written] == ["momentum"]


def test_a_function_that_was_never_traced_here_keeps_its_handles(pair: Variables) -> None:
    weight = pair[0].values[0]
    calling = Calling(lambda x: x * weight)
    with pytest.raises(HandleNeededError, match="loaded"):
        calling.specialiser().reading("loaded", calling.handles, ())
