"""What the dialect emits for a traced Keras step reaches a TPU: libtpu keeps it, for v5e:4x4.

On a torus of this size libtpu turns a reduce-scatter over all chips back into an all-reduce, and
the benefit is silently lost; a step of that form shows that the check would see it.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import pathlib

import pytest

from tests.tpu_compiler.keras_steps import TracedStep, muon, shampoo, traced
from tf_wu_shard.bench.conversation import Worker
from tf_wu_shard.grounds.tpu import all_gather_module
from tf_wu_shard.grounds.tpu.torus import one_group
from tf_wu_shard.step import replicas
from tf_wu_shard.topology import parse_topology
from tf_wu_shard.tpu_compiler.chips import CHIPS
from tf_wu_shard.tpu_compiler.hlo import hlo_of
from tf_wu_shard.tpu_compiler.optimized import read_instructions
from tf_wu_shard.tpu_compiler.survivors import Survivor, survivors

# These run ops, and devices cannot be divided once TensorFlow has used one.
pytestmark = pytest.mark.usefixtures("logical_cpus")

PLACE = parse_topology("v5e:4x4")
FLOAT_BYTES = 4


@dataclasses.dataclass(frozen=True)
class Judged:
    """A step and what libtpu made of it.

    Attributes:
        step: The step.
        requested: How many collectives of each kind libtpu was given.
        left: The collectives of the optimized program.
    """

    step: TracedStep
    requested: dict[str, int]
    left: list[Survivor]

    def of_kind(self, kind: str) -> list[Survivor]:
        """The collectives of a kind that are left."""
        return [survivor for survivor in self.left if survivor.kind == kind]

    def kinds(self) -> dict[str, int]:
        """How many collectives of each kind are left."""
        return dict(collections.Counter(survivor.kind for survivor in self.left))


def judged(step: TracedStep, compiler: Worker, folder: pathlib.Path) -> Judged:
    (folder / "step.pb").write_bytes(hlo_of(step.body))
    answer = compiler.ask(
        "compile",
        hlo=str(folder / "step.pb"),
        topology=PLACE.name,
        chip_config=CHIPS[PLACE.generation].config,
        optimized=str(folder / "step.hlo"),
    )
    assert not answer["error"]
    text = (folder / "step.hlo").read_text(encoding="utf-8")
    return Judged(step, answer["requested"], survivors(list(read_instructions(text))))


def check_what_was_emitted_is_left(found: Judged) -> None:
    """Fails unless every reduce-scatter and all-gather of the dialect is left as what it is."""
    nodes = found.step.body.graph_def.node
    modules = [node.attr["module"].s.decode() for node in nodes if node.op == "XlaCallModule"]
    emitted = {
        "reduce-scatter": [node.op for node in nodes].count("XlaReduceScatter"),
        "all-gather": len([m for m in modules if all_gather_module.read(m) is not None]),
    }
    for kind, count in emitted.items():
        assert count > 0
        assert found.requested[kind] == count
        assert len(found.of_kind(kind)) == count, f"{found.kinds()} are left of {found.requested}"
    # One along the second axis that turned back would still sum a row's part of the gradient.
    assert found.step.report is not None
    smallest = min(math.prod(v.shape) for v in found.step.report.variables) * FLOAT_BYTES
    for survivor in found.of_kind("all-reduce"):
        assert survivor.largest < smallest // max(PLACE.mesh), survivor


def check_libtpu_sharded_nothing_itself(found: Judged) -> None:
    """Fails where libtpu's own pass shards an update: its collectives come from ops of others."""
    for kind in ("reduce-scatter", "all-gather"):
        for survivor in found.of_kind(kind):
            assert "wu_shard/" in survivor.op_name, survivor


def transformer() -> TracedStep:
    """A sharded step: a tied table, attention's stacks of matrices, feed-forward kernels."""
    return traced("transformer_lm", PLACE, {"min_elements": None}, vocabulary=512, width=256)


def test_every_collective_of_a_sharded_keras_step_is_left_and_libtpu_adds_none(
    compiler: Worker, tmp_path: pathlib.Path
) -> None:
    found = judged(transformer(), compiler, tmp_path)
    check_what_was_emitted_is_left(found)
    check_libtpu_sharded_nothing_itself(found)
    assert found.step.report is not None
    assert found.step.report.place.startswith("a 4x4 torus: collectives along one axis at a time")
    # What is not sharded travels together.
    assert len(found.of_kind("all-reduce")) == 1
    # So would an update look that libtpu sharded itself: gathered where the optimizer wrote it.
    own = Survivor("all-gather", 4096, 4096, "adam/AssignSubVariableOp")
    with pytest.raises(AssertionError):
        check_libtpu_sharded_nothing_itself(dataclasses.replace(found, left=[*found.left, own]))


def test_whole_tensors_of_matrix_functions_go_by_all_to_alls_that_are_left(
    compiler: Worker, tmp_path: pathlib.Path
) -> None:
    step = traced("mlp", PLACE, {"min_elements": None}, muon, width=256)
    found = judged(step, compiler, tmp_path)
    check_what_was_emitted_is_left(found)
    assert step.report is not None and step.report.emitted["all_to_all"] == 2
    own = [s for s in found.of_kind("all-to-all") if "wu_shard/" in s.op_name]
    # Two matrices, filled up to sixteen: a shard for each replica is as much as one of them.
    assert [survivor.bytes for survivor in own] == [256 * 256 * FLOAT_BYTES] * 2


@pytest.mark.slow
def test_so_do_matrices_that_are_kept_of_matrices_of_other_sizes(
    compiler: Worker, tmp_path: pathlib.Path
) -> None:
    sizes = {"vocabulary": 512, "width": 256, "depth": 2}
    step = traced("transformer_lm", PLACE, {"min_elements": None}, shampoo, **sizes)
    found = judged(step, compiler, tmp_path)
    check_what_was_emitted_is_left(found)
    assert step.report is not None
    turned = {v.shape for v in step.report.variables if v.whole.startswith("by turns")}
    assert turned == {(256, 1024), (1024, 256)}
    own = [s for s in found.of_kind("all-to-all") if "wu_shard/" in s.op_name]
    # Of both: the gradient, its two statistics back, these as they are kept, and the step.
    assert len(own) == step.report.emitted["all_to_all"] == 2 * 6


def test_a_step_that_scatters_over_all_chips_at_once_fails_the_check(
    compiler: Worker, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "torus_of", lambda places: one_group(len(places)))
    found = judged(transformer(), compiler, tmp_path)
    assert found.requested["reduce-scatter"] == 4
    assert not found.of_kind("reduce-scatter")
    with pytest.raises(AssertionError, match="'reduce-scatter': 4"):
        check_what_was_emitted_is_left(found)
