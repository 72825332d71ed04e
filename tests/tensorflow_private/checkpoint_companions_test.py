"""Checkpoints hold one object more beside a strategy's variables, and restore it."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterable
from typing import Any

import keras
import pytest
import tensorflow as tf
from tensorflow.python.checkpoint import async_checkpoint_helper, checkpoint
from tensorflow.python.trackable import base

from tf_wu_shard.tensorflow_private import checkpoint_companions
from tf_wu_shard.tensorflow_private.checkpoint_companions import variables_in
from tf_wu_shard.tensorflow_private.wrapping import unwrap

KEY = "companion/.ATTRIBUTES/py_state"


class Text(tf.train.experimental.PythonState):
    """A text beside a variable."""

    def __init__(self, text: str = "") -> None:
        self.text = text

    def serialize(self) -> str:
        """What a checkpoint holds."""
        return self.text

    def deserialize(self, string_value: bytes) -> None:
        """Takes what one holds."""
        self.text = string_value.decode()


class Texts:
    """Texts beside variables, by the variable's id; what is done to variables is noted."""

    def __init__(self) -> None:
        self.texts: dict[int, Text] = {}
        self.done: list[tuple[str, set[int]]] = []
        self.refuses = False

    def of(self, variable: Any) -> Text | None:
        """None of a variable that has none."""
        return self.texts.get(id(variable))

    def made(self, variable: Any) -> Text:
        """One for each variable that is asked for."""
        return self.texts.setdefault(id(variable), Text())

    def before_save(self, variables: Iterable[Any]) -> None:
        """Notes it."""
        self.done.append(("save", {*map(id, variables)}))

    def before_restore(self, variables: Iterable[Any]) -> None:
        """Notes it."""
        self.done.append(("restore", {*map(id, variables)}))

    def before_save_aside(self, variables: Iterable[Any]) -> None:
        """Notes it, and may refuse it."""
        self.done.append(("save aside", {*map(id, variables)}))
        if self.refuses:
            raise ValueError("no place for it")


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> Texts:
    """What stands beside variables, and no others' companions."""
    wrapped: list[tuple[Any, str]] = [
        (base.Trackable, "_trackable_children"),
        (base.Trackable, "_lookup_dependency"),
        (checkpoint.TrackableSaver, "save"),
        (checkpoint.TrackableSaver, "restore"),
        (async_checkpoint_helper.AsyncCheckpointHelper, "save"),
        (async_checkpoint_helper.AsyncCheckpointHelper, "_write"),
    ]
    for owner, name in wrapped:
        monkeypatch.setattr(owner, name, getattr(owner, name))
        unwrap(owner, name)
    made = Texts()
    checkpoint_companions.install("companion", made)
    return made


@pytest.fixture
def scope(strategy_of: Callable[[int], tf.distribute.Strategy]) -> Any:
    """The scope of a strategy of two replicas."""
    return strategy_of(2).scope


def names_in(path: str) -> set[str]:
    return {name for name, _ in tf.train.list_variables(path) if "companion" in name}


def test_a_checkpoint_holds_what_stands_beside_a_variable_and_restores_it(
    texts: Texts, scope: Any, tmp_path: pathlib.Path
) -> None:
    with scope():
        variable = tf.Variable([1.0, 2.0])
    texts.texts[id(variable)] = Text("late")
    own = tf.train.Checkpoint(weight=variable)
    path = own.write(str(tmp_path / "c"))
    assert names_in(path) == {f"weight/{KEY}"}
    texts.texts[id(variable)].text = "another"
    variable.assign([0.0, 0.0])
    own.read(path).assert_consumed()
    assert texts.texts[id(variable)].text == "late"
    assert variable.numpy().tolist() == [1.0, 2.0]


def test_a_variable_with_nothing_beside_it_is_saved_as_ever(
    texts: Texts, scope: Any, tmp_path: pathlib.Path
) -> None:
    with scope():
        one, other = tf.Variable(1.0), tf.Variable(2.0)
    texts.texts[id(one)] = Text("late")
    path = tf.train.Checkpoint(one=one, other=other).write(str(tmp_path / "c"))
    assert names_in(path) == {f"one/{KEY}"}


def test_plain_variables_have_no_companion(texts: Texts, tmp_path: pathlib.Path) -> None:
    plain = tf.Variable(1.0)
    texts.texts[id(plain)] = Text("never saved")
    path = tf.train.Checkpoint(plain=plain).write(str(tmp_path / "c"))
    assert names_in(path) == set()


def test_what_a_checkpoint_holds_is_made_where_it_is_not_there(
    texts: Texts, scope: Any, tmp_path: pathlib.Path
) -> None:
    with scope():
        first, second = tf.Variable(1.0), tf.Variable(0.0)
    texts.texts[id(first)] = Text("late")
    path = tf.train.Checkpoint(weight=first).write(str(tmp_path / "c"))
    # The variable comes after the checkpoint was read.
    later = tf.train.Checkpoint()
    status = later.read(path)
    later.weight = second
    status.assert_consumed()
    assert texts.texts[id(second)].text == "late"


def test_a_variable_inside_of_kerases_is_found_by_either(
    texts: Texts, scope: Any, tmp_path: pathlib.Path
) -> None:
    with scope():
        own = keras.Variable([1.0], name="own")
    texts.texts[id(own.value)] = Text("late")
    path = tf.train.Checkpoint(own=own).write(str(tmp_path / "c"))
    assert names_in(path)
    assert variables_in(tf.train.Checkpoint(own=own, inside=own.value)) == [own.value]


def test_a_saved_model_holds_none(texts: Texts, scope: Any) -> None:
    with scope():
        variable = tf.Variable(1.0)
    texts.texts[id(variable)] = Text("late")
    beside = variable._trackable_children
    assert "companion" in beside() and "companion" in beside(base.SaveType.CHECKPOINT)
    assert "companion" in beside(save_type=base.SaveType.CHECKPOINT)
    assert "companion" not in beside(base.SaveType.SAVEDMODEL)
    assert "companion" not in beside(save_type=base.SaveType.SAVEDMODEL)


def test_it_is_told_which_variables_are_saved_and_restored(
    texts: Texts, scope: Any, tmp_path: pathlib.Path
) -> None:
    with scope():
        one, other = tf.Variable(1.0), tf.Variable(2.0)
    own = tf.train.Checkpoint(one=one, other=other, plain=tf.Variable(3.0))
    both = {id(one), id(other)}
    path = own.write(str(tmp_path / "c"))
    assert texts.done == [("save", both)]
    own.read(path)
    tf.train.Checkpoint(one=one).read(path).expect_partial()
    assert texts.done[1:] == [("restore", both), ("restore", {id(one)})]


def test_of_no_path_nothing_is_restored(texts: Texts, scope: Any) -> None:
    with scope():
        own = tf.train.Checkpoint(weight=tf.Variable(1.0))
    own.restore(None)
    assert texts.done == []


# A thread of TensorFlow's writes a copy.
ASIDE = tf.train.CheckpointOptions(experimental_enable_async_checkpoint=True)


def saved(scope: Any) -> tuple[tf.Variable, tf.train.Checkpoint]:
    """A variable, and a checkpoint of it."""
    with scope():
        variable = tf.Variable(1.0)
    return variable, tf.train.Checkpoint(weight=variable)


def test_what_another_thread_writes_may_be_refused_before(
    texts: Texts, scope: Any, tmp_path: pathlib.Path
) -> None:
    variable, own = saved(scope)
    texts.refuses = True
    for write in (own.save, own.write):
        with pytest.raises(ValueError, match="no place for it"):
            write(str(tmp_path / "c"), options=ASIDE)
    assert texts.done == [("save aside", {id(variable)})] * 2
    assert not [*tmp_path.iterdir()]


def test_another_thread_that_writes_copies_asks_no_more(
    texts: Texts, scope: Any, tmp_path: pathlib.Path
) -> None:
    variable, own = saved(scope)
    own.write(str(tmp_path / "c"), options=ASIDE)
    own.sync()
    assert texts.done == [("save aside", {id(variable)})]
    assert tf.train.list_variables(str(tmp_path / "c"))


def test_variables_of_a_model_are_found_once_each(scope: Any) -> None:
    with scope():
        weights = [tf.Variable(float(number)) for number in range(3)]
    model = tf.Module()
    model.layers = [weights[0], {"deep": weights[1]}, weights[0]]
    model.plain = tf.Variable(9.0)
    found = variables_in(model)
    assert {*map(id, found)} == {*map(id, weights[:2])} and len(found) == 2


@pytest.mark.parametrize("root", [None, "model.keras", object(), [1, 2]])
def test_what_tensorflow_does_not_track_has_no_variables(root: Any) -> None:
    assert variables_in(root) == []
