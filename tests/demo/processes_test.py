"""Claims about demo/processes.py: a failed run is an error that shows its log."""

import pathlib

import pytest

from tf_wu_shard.demo.processes import Trainer
from tf_wu_shard.demo.runs import DemoError, Mode


def test_a_failed_run_shows_the_end_of_its_log(tmp_path: pathlib.Path) -> None:
    with pytest.raises(DemoError, match="invalid choice: 'no_such_task'") as caught:
        Trainer(2, True, tmp_path).train("no_such_task", Mode.SHARDED, lambda *_: None)
    assert "the sharded run of no_such_task ended with status 2" in str(caught.value)
    assert str(tmp_path / "no_such_task-sharded" / "log.txt") in str(caught.value)
