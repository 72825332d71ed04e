"""What is said of real models: what trains, which optimizer, what would be sharded."""

from __future__ import annotations

import pathlib

import pytest
import tensorflow as tf

from tests.cli.command import python
from tests.model_files.exported import exported
from tests.project.imports import ROOT
from tf_wu_shard.errors import OptionError
from tf_wu_shard.inspection.answers.answer import FunctionAnswer, Inspection
from tf_wu_shard.inspection.formats.markdown import as_markdown
from tf_wu_shard.inspection.inspect import inspect
from tf_wu_shard.inspection.steps.grounds import Question
from tf_wu_shard.model_files.read import read_model
from tf_wu_shard.tensorflow_private import model_protos
from tf_wu_shard.topology import parse_topology


def training(inspection: Inspection) -> FunctionAnswer:
    """The function that trains, not one that calls it."""
    (found,) = (f for f in inspection.functions if f.report is not None)
    return found


def test_a_step_on_one_device_is_planned_as_if_on_replicas() -> None:
    inspection = inspect(read_model(exported()), Question(replicas=4))
    assert not inspection.notes and inspection.verdict == "1 function trains"
    found = training(inspection)
    assert found.reductions == 0 and found.report is not None
    (sharded,) = found.report.variables
    assert (sharded.name, sharded.layout) == ("sequential/hidden/kernel", "flat 1024/4")
    assert {left.reason for left in found.report.left_alone} == {
        f"{count} elements, below min_elements=1024" for count in (64, 640, 10)
    }
    (by_call,) = (f for f in inspection.functions if f.trained_by)
    assert by_call.trains and by_call.verdict == f"trains by calling {found.name}"


def test_memory_is_told_for_more_and_more_replicas() -> None:
    rows = training(inspect(read_model(exported()), Question())).memory
    assert [row.replicas for row in rows] == [2**i for i in range(1, 11)]
    elements = {"kernel": 1024, "others": 64 + 640 + 10}
    assert rows[0].slots.unsharded == 2 * 4 * sum(elements.values())
    assert rows[1].slots.sharded == 2 * 4 * (elements["kernel"] // 4 + elements["others"])
    assert rows[1].weights.sharded == 4 * sum(elements.values())


def test_a_tpu_slice_is_planned_for_as_a_tpu() -> None:
    question = Question(topology=parse_topology("v5e:2x2"))
    report = training(inspect(read_model(exported()), question)).report
    assert report is not None and report.num_replicas == 4 and "2x2 torus" in report.place


def test_on_many_tpu_cores_a_variable_is_small_for_their_number() -> None:
    """1,024 elements are a tile for one core and none for the others."""
    question = Question(topology=parse_topology("v5e:2x2"))
    inspection = inspect(read_model(exported()), question)
    markdown = as_markdown(inspection)
    assert "| 4 variables, small for 4 replicas | 10 to 1,024 elements, below" in markdown
    assert "min\\_elements=4096, for each of 4 replicas a tile of 1024" in markdown
    assert "left alone, small for 4 replicas |" in markdown


def test_inference_alone_has_nothing_to_shard() -> None:
    inspection = inspect(read_model(exported(None)), Question())
    assert inspection.verdict == "0 variable writes, nothing to shard"
    assert inspection.functions and not inspection.notes


class Set(tf.Module):
    """A weight that is only ever set, by a signature."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = tf.Variable(tf.ones((64, 64)))

    @tf.function(input_signature=[])
    def reset(self) -> tf.Tensor:
        self.weight.assign(tf.zeros_like(self.weight))
        return tf.constant(0)


def test_what_only_sets_a_weight_trains_none_nor_does_what_calls_it(tmp_path: pathlib.Path) -> None:
    module = Set()
    tf.saved_model.save(module, tmp_path, signatures={"reset": module.reset})
    found = inspect(read_model(tmp_path), Question()).functions
    assert not any(answer.trains or answer.report for answer in found)
    verdicts = {answer.verdict for answer in found}
    assert "1 variable writes, none with a gradient: nothing to shard" in verdicts
    assert any(verdict.startswith("writes by calling __inference_reset_") for verdict in verdicts)


def test_a_function_is_found_by_the_name_that_python_gave_it() -> None:
    inspection = inspect(read_model(exported()), Question(function="train"))
    assert all("train" in function.name for function in inspection.functions)
    with pytest.raises(OptionError, match="the model has no function 'absent'"):
        inspect(read_model(exported()), Question(function="absent"))


def test_functions_alone_show_what_is_trained(
    tmp_path: pathlib.Path,
) -> None:
    saved = model_protos.saved_model()
    saved.ParseFromString((exported() / "saved_model.pb").read_bytes())
    path = tmp_path / "functions.pb"
    path.write_bytes(saved.meta_graphs[0].graph_def.library.SerializeToString())
    found = training(inspect(read_model(path), Question(function="train")))
    assert found.report is not None
    assert any("does not say which variables are trained" in n for n in found.report.notes)
    # A bias is told from a slot by the way that it enters its own update.
    told = training(inspect(read_model(exported()), Question(function="train")))
    assert found.updates
    assert [(update.shape, update.optimizer) for update in found.updates] == [
        (update.shape, update.optimizer) for update in told.updates
    ]


def test_a_checkpoint_of_tensorflow_1_is_inspected_at_its_train_op(tmp_path: pathlib.Path) -> None:
    with tf.Graph().as_default():
        batch = tf.compat.v1.placeholder(tf.float32, (8, 64))
        weight = tf.compat.v1.get_variable("w", (64, 32), use_resource=True)
        loss = tf.reduce_sum(tf.matmul(batch, weight) ** 2)
        tf.compat.v1.train.AdamOptimizer().minimize(loss)
        tf.compat.v1.train.Saver().export_meta_graph(str(tmp_path / "model.meta"))
    found = training(inspect(read_model(tmp_path / "model.meta"), Question(replicas=2)))
    (update,) = found.updates
    assert (update.optimizer, update.slots) == ("Adam", ("w/Adam", "w/Adam_1"))
    assert found.report is not None and found.report.variables[0].layout == "flat 2048/2"


def test_a_function_that_calls_itself_is_said_to(tmp_path: pathlib.Path) -> None:
    library = model_protos.function_library()
    for name, callee in (("a", "b"), ("b", "a")):
        function = library.function.add()
        function.signature.name = name
        node = function.node_def.add(name="call", op="PartitionedCall")
        node.attr["f"].func.name = callee
    (tmp_path / "library.pb").write_bytes(library.SerializeToString())
    inspection = inspect(read_model(tmp_path / "library.pb"), Question())
    assert {f.refusal for f in inspection.functions} == {"'a' calls itself"}
    assert len(inspection.notes) == 2


def test_functions_that_call_twice_what_calls_twice_come_to_an_end(tmp_path: pathlib.Path) -> None:
    library = model_protos.function_library()
    for level in range(35):
        function = library.function.add()
        function.signature.name = f"f{level}"
        for call in range(2):
            node = function.node_def.add(name=f"call{call}", op="PartitionedCall")
            node.attr["f"].func.name = f"f{level + 1}"
    (tmp_path / "library.pb").write_bytes(library.SerializeToString())
    (found,) = inspect(read_model(tmp_path / "library.pb"), Question()).functions
    assert "more than 10000 ops, and the file has 70" in found.refusal


@pytest.fixture(scope="module")
def tpu_step(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A step of a TPU program of two replicas, as saved_model.save writes it."""
    folder = tmp_path_factory.mktemp("tpu")
    done = python("-m", "tests.inspection.tpu_step", str(folder), "2", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return folder


def test_a_tpu_step_says_what_it_reduces_and_over_which_replicas(tpu_step: pathlib.Path) -> None:
    found = training(inspect(read_model(tpu_step), Question()))
    assert (found.reductions, found.groups, found.assumed) == (4, "all 2 replicas", 0)
    assert {(u.optimizer, len(u.slots)) for u in found.updates} == {("adam-like", 2)}
    assert found.report is not None
    assert any("in the order in which they were traced" in note for note in found.report.notes)
