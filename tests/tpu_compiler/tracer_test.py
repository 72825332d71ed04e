"""The process that traces answers each command with what it found, or why not, and goes on."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest
import tensorflow as tf

import tf_wu_shard
from tf_wu_shard.config import FLAG
from tf_wu_shard.errors import OptionError, WuShardError
from tf_wu_shard.tpu_compiler import step, tracer
from tf_wu_shard.tpu_compiler.body import Argument, ReplicaBody
from tf_wu_shard.tpu_compiler.scopes import Scope
from tf_wu_shard.tpu_compiler.settings import Settings

BODY = ReplicaBody(
    tf.compat.v1.GraphDef(),
    (
        Argument("weight", 1, (512, 8), True),
        Argument("number", 3, (), False),
        Argument("images", 1, (6, 28, 28), False),
        Argument("labels", 1, (7,), False),
    ),
    (),
    (),
    4,
)

MODEL = {"topology": "v5e:2x2", "model": "mlp", "arguments": []}


class Channel:
    """A parent that sends some commands, and the answers that it gets."""

    def __init__(self, *commands: dict[str, Any]) -> None:
        self._waiting = [*commands]
        self.said: list[Any] = []

    def command(self) -> dict[str, Any] | None:
        return self._waiting.pop(0) if self._waiting else None

    def answer(self, value: Any) -> None:
        self.said.append(value)

    def fail(self, error: BaseException) -> None:
        self.said.append(error)


def asked(folder: pathlib.Path, **changes: Any) -> dict[str, Any]:
    files = {name: str(folder / name) for name in ("hlo", "scopes")}
    return {"command": "trace", "settings": dict(MODEL), "sharded": False, **files, **changes}


def served(monkeypatch: pytest.MonkeyPatch, *commands: dict[str, Any]) -> list[Any]:
    """What a parent is answered."""
    channel = Channel(*commands)
    monkeypatch.setattr(tracer, "Channel", lambda: channel)
    assert tracer.main() == 0
    return channel.said


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The graphs of which a body was made, with the batch that was asked for."""
    made: list[Any] = []

    def replica_body(*given: Any) -> ReplicaBody:
        made.append(given)
        return BODY

    monkeypatch.setattr(tracer, "replica_body", replica_body)
    monkeypatch.setattr(tracer, "hlo_of", lambda body: b"hlo" if body is BODY else b"")
    monkeypatch.setattr(tracer, "scopes_of", lambda graph_def: {"a/b": Scope.OTHER})
    monkeypatch.setattr(step, "strategy_for", lambda topology: topology.num_devices)
    monkeypatch.setattr(step, "trace_model", lambda *given, **named: (*given, named))
    monkeypatch.setattr(tracer, "trace_script", lambda *given: given)
    monkeypatch.setattr(tf_wu_shard, "reports", list)
    return made


def test_a_models_step_is_written_and_described(
    lowered: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    (answer,) = served(monkeypatch, asked(tmp_path))
    assert answer["seconds"] >= 0 and answer["fingerprint"] == BODY.fingerprint
    # The first input that has dimensions is the batch; weights are no inputs.
    assert (answer["batch"], answer["said"]) == (6, "")
    assert (tmp_path / "hlo").read_bytes() == b"hlo"
    assert json.loads((tmp_path / "scopes").read_text()) == {"a/b": Scope.OTHER.value}
    named = {"optimizer": "adam", "batch": 2, "strategy": 4}
    assert lowered == [(("mlp", named), 2)]


def test_a_script_is_traced_with_its_own_arguments_on_the_slice(
    lowered: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    settings = {"topology": "v5e:2x2", "script": "train.py", "arguments": ["--rate", "1"]}
    served(monkeypatch, asked(tmp_path, settings=settings))
    (((script, arguments, topology), batch),) = lowered
    assert (script, arguments, batch) == ("train.py", ("--rate", "1"), None)
    assert topology == Settings(topology="v5e:2x2", model="mlp").slice


def test_the_flag_is_on_while_a_sharded_step_is_traced(
    lowered: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    flags: list[Any] = []
    monkeypatch.setattr(tf.config.optimizer, "set_experimental_options", flags.append)
    served(monkeypatch, asked(tmp_path), asked(tmp_path, sharded=True))
    (flag,) = flags
    assert flag == {FLAG: Settings(topology="v5e:2x2", model="mlp").sharding_options}
    assert len(lowered) == 2


def test_an_error_is_told_in_the_users_words_or_as_a_failure_and_the_next_command_is_served(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    errors = [OptionError("no such model"), WuShardError("no train step"), ValueError("a bug")]
    waiting = [*errors]

    def fails(*given: Any) -> Any:
        raise waiting.pop(0)

    monkeypatch.setattr(tracer, "trace", fails)
    said = served(monkeypatch, *(asked(tmp_path) for _ in errors))
    assert said == [errors[0], {"error": "no train step"}, errors[2]]
