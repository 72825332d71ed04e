"""A bucket's runs are a dimension of their own: libtpu pads what is scattered along its rows."""

from __future__ import annotations

import pathlib

import pytest

from tests.tpu_compiler.programs import Program
from tf_wu_shard.bench.conversation import Worker
from tf_wu_shard.grounds.tpu import axis_ops
from tf_wu_shard.grounds.tpu.torus import torus_of
from tf_wu_shard.topology import parse_topology
from tf_wu_shard.tpu_compiler.chips import CHIPS
from tf_wu_shard.tpu_compiler.figures import Memory, figures_of
from tf_wu_shard.tpu_compiler.hlo import hlo_of

# These run ops, and devices cannot be divided once TensorFlow has used one.
pytestmark = pytest.mark.usefixtures("logical_cpus")

# A bucket of 64 MiB; each replica of a 4x4 torus keeps 256 rows.
SHAPE = (4096, 4096)


def collectives(compiler: Worker, folder: pathlib.Path, *, by_row: bool) -> dict[str, int]:
    """The collectives that are left of a sum scattered along both axes of the torus."""
    topology = parse_topology("v5e:4x4")
    chip, axes = CHIPS[topology.generation], torus_of(topology.coordinates).axes
    program = Program()
    value = program.tensor("gradient", SHAPE)
    weight = program.variable("weight", (SHAPE[0] // topology.num_devices, SHAPE[1]))
    if by_row:
        for groups in axes:
            value = program.reduce_scatter(value, groups)
    else:
        value = axis_ops.reduce_scatter(program.at.within("bucket"), value, SHAPE, axes)
    program.subtract_from(weight, value)
    (folder / "step.pb").write_bytes(hlo_of(program.body(num_replicas=topology.num_devices)))
    answer = compiler.ask(
        "compile",
        hlo=str(folder / "step.pb"),
        topology="v5e:4x4",
        chip_config=chip.config,
        optimized=str(folder / "step.hlo"),
    )
    assert not answer["error"]
    text = (folder / "step.hlo").read_text(encoding="utf-8")
    return figures_of(text, Memory(**answer["memory"]), chip, {}).collectives


def test_a_large_bucket_survives_as_one_reduce_scatter_for_each_axis(
    compiler: Worker, tmp_path: pathlib.Path
) -> None:
    assert collectives(compiler, tmp_path, by_row=False) == {"reduce-scatter": 2}


def test_scattered_along_its_rows_it_is_padded_and_its_shards_move_again(
    compiler: Worker, tmp_path: pathlib.Path
) -> None:
    # When libtpu stops doing this, a matrix may be scattered as it is.
    assert collectives(compiler, tmp_path, by_row=True).get("collective-permute", 0) > 0
