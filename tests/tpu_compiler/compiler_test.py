"""What libtpu makes of small programs: which collectives survive, and where it sees the devices."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Any

import pytest

from tests.tpu_compiler.programs import axis_groups, sharded_descent
from tf_wu_shard.bench.conversation import Worker
from tf_wu_shard.topology import parse_topology, topology_names
from tf_wu_shard.tpu_compiler.chips import CHIPS
from tf_wu_shard.tpu_compiler.figures import Figures, Memory, figures_of
from tf_wu_shard.tpu_compiler.hlo import hlo_of

# These run ops, and devices cannot be divided once TensorFlow has used one.
pytestmark = pytest.mark.usefixtures("logical_cpus")


def compile_descent(
    compiler: Worker,
    folder: pathlib.Path,
    name: str,
    stages: Sequence[Sequence[Sequence[int]]],
    rows: int = 4096,
) -> tuple[dict[str, Any], Figures]:
    topology = parse_topology(name)
    chip = CHIPS[topology.generation]
    body = sharded_descent(rows, 512, stages, topology.num_devices)
    (folder / "step.pb").write_bytes(hlo_of(body))
    answer = compiler.ask(
        "compile",
        hlo=str(folder / "step.pb"),
        topology=name,
        chip_config=chip.config,
        optimized=str(folder / "step.hlo"),
    )
    assert not answer["error"]
    text = (folder / "step.hlo").read_text(encoding="utf-8")
    return answer, figures_of(text, Memory(**answer["memory"]), chip, {})


def test_one_reduce_scatter_per_torus_axis_survives_on_sixteen_chips(
    compiler: Worker, tmp_path: pathlib.Path
) -> None:
    places = parse_topology("v5e:4x4").coordinates
    stages = [axis_groups(places, 0), axis_groups(places, 1)]
    answer, figures = compile_descent(compiler, tmp_path, "v5e:4x4", stages)
    assert answer["requested"] == {"reduce-scatter": 2, "all-gather": 2}
    assert figures.collectives == {"reduce-scatter": 2, "all-gather": 2}


def test_one_reduce_scatter_over_sixteen_chips_turns_back_into_an_all_reduce(
    compiler: Worker, tmp_path: pathlib.Path
) -> None:
    # The trap that the form above is for. When libtpu stops doing this, one stage is enough.
    answer, figures = compile_descent(compiler, tmp_path, "v5e:4x4", [[list(range(16))]])
    assert answer["requested"] == {"reduce-scatter": 1, "all-gather": 1}
    assert figures.collectives == {"all-reduce": 1, "all-gather": 1}


def test_one_reduce_scatter_over_eight_chips_survives(
    compiler: Worker, tmp_path: pathlib.Path
) -> None:
    _, figures = compile_descent(compiler, tmp_path, "v5e:2x4", [[list(range(8))]])
    assert figures.collectives == {"reduce-scatter": 1, "all-gather": 1}


def test_the_weight_is_written_where_it_was_read(compiler: Worker, tmp_path: pathlib.Path) -> None:
    answer, figures = compile_descent(compiler, tmp_path, "v5e:2x4", [[list(range(8))]])
    weight = 4096 * 512 * 4
    assert answer["memory"]["argument_bytes"] == 2 * weight
    assert answer["memory"]["alias_bytes"] == weight
    assert figures.memory.in_use == 2 * weight + figures.memory.temp_bytes


def test_a_step_that_does_not_fit_says_so_in_one_line(
    compiler: Worker, tmp_path: pathlib.Path
) -> None:
    body = sharded_descent(2**22, 2**10, [[list(range(8))]], 8)
    (tmp_path / "step.pb").write_bytes(hlo_of(body))
    answer = compiler.ask(
        "compile",
        hlo=str(tmp_path / "step.pb"),
        topology="v5e:2x4",
        chip_config="default",
        optimized=str(tmp_path / "step.hlo"),
    )
    assert "RESOURCE_EXHAUSTED" in answer["error"] and "\n" not in answer["error"]


@pytest.mark.parametrize("name", topology_names())
def test_libtpu_sees_the_devices_of_a_slice_where_we_say(compiler: Worker, name: str) -> None:
    topology = parse_topology(name)
    config = CHIPS[topology.generation].config
    found = compiler.ask("devices", topology=name, chip_config=config)
    assert [tuple(place) for place in found] == list(topology.coordinates)
