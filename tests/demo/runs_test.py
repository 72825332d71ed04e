"""Claims about demo/runs.py: a run that was written reads back the same."""

import dataclasses
import pathlib

import numpy as np
import pytest

from tf_wu_shard.demo import runs
from tf_wu_shard.demo.runs import (
    ClusterFigures,
    DemoError,
    Mode,
    Run,
    ShardedVariable,
    Sharding,
    Tensors,
)

_SHARDING = Sharding(
    verdict="partly sharded",
    text="sharded 1 of 2",
    variables=(ShardedVariable("kernel", (3, 5), "flat 15/8", ("m", "v"), 0, 1),),
    left_alone=(("bias", "3 elements"),),
    notes=("a note",),
    slot_bytes_unsharded=120,
    slot_bytes_sharded=16,
    pass_ms=1.5,
    trace_ms=9.0,
)
_RUN = Run(Mode.SHARDED, 18, (2.0, 1.0, 0.5), (0.1, 0.3), 9.0, 0.25, 1000, _SHARDING)
_TENSORS = Tensors(
    {"000 a:b/kernel": np.arange(6, dtype=np.float32).reshape(2, 3)},
    {"000 iteration": np.array(3, np.int64)},
)


_ON_WORKERS = dataclasses.replace(_RUN, cluster=ClusterFigures(("ab", "ab"), 1.5, 0.25))


@pytest.mark.parametrize("run", [_RUN, dataclasses.replace(_RUN, sharding=None), _ON_WORKERS])
def test_a_run_reads_back_as_written(run: Run, tmp_path: pathlib.Path) -> None:
    runs.save(tmp_path, run, _TENSORS)
    read, tensors = runs.load(tmp_path)
    assert read == run
    for before, after in (
        (_TENSORS.weights, tensors.weights),
        (_TENSORS.slots, tensors.slots),
    ):
        assert before.keys() == after.keys()
        for name, value in before.items():
            np.testing.assert_array_equal(value, after[name])
            assert value.dtype == after[name].dtype


def test_half_a_run_is_refused(tmp_path: pathlib.Path) -> None:
    runs.save(tmp_path, _RUN, _TENSORS)
    (tmp_path / "tensors.npz").write_bytes(b"PK half")
    with pytest.raises(DemoError, match="holds no whole run"):
        runs.load(tmp_path)


def test_an_empty_folder_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(DemoError, match="holds no whole run"):
        runs.load(tmp_path)


def test_the_median_step_leaves_out_the_first() -> None:
    assert _RUN.median_step_s == pytest.approx(0.2)
