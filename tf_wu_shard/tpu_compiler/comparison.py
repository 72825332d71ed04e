"""The replicated and the sharded step side by side: compiled, read, and put as text and JSON."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

from tf_wu_shard.errors import WuShardError
from tf_wu_shard.tpu_compiler import children
from tf_wu_shard.tpu_compiler.chips import CHIPS
from tf_wu_shard.tpu_compiler.figures import Figures, Memory, figures_of
from tf_wu_shard.tpu_compiler.scopes import Scope
from tf_wu_shard.tpu_compiler.settings import Settings

MODES = ("replicated", "sharded")


class StepError(WuShardError, RuntimeError):
    """A step that cannot be traced, lowered or compiled, in one line."""


@dataclasses.dataclass(frozen=True)
class Compiled:
    """One of the two steps.

    Attributes:
        figures: Read from what the compiler wrote; None where it did not compile.
        requested: How many collectives of each kind the compiler was given.
        error: Why it did not compile, "" where it did. A step that does not fit says so.
        seconds: How long tracing and compiling took.
    """

    figures: Figures | None
    requested: dict[str, int]
    error: str
    seconds: dict[str, float]

    @property
    def turned_back(self) -> int:
        """How many reduce-scatters the compiler turned back into all-reduces."""
        if self.figures is None:
            return 0
        left = self.figures.collectives.get("reduce-scatter", 0)
        return max(0, self.requested.get("reduce-scatter", 0) - left)

    def to_json(self) -> dict[str, Any]:
        """All fields, flat; an `error` in the place of figures that are not there."""
        figures = {"error": self.error} if self.figures is None else self.figures.to_json()
        return figures | {"requested_collectives": self.requested, "seconds": self.seconds}


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Both steps.

    Attributes:
        settings: What was compiled.
        replicas: Of the slice.
        replicated: The step as TensorFlow traces it.
        sharded: The same with the flag on.
        said: What the pass said of the sharded step, "" when it said nothing.
        batch: Examples a replica, where the step has an input that shows it.
    """

    settings: Settings
    replicas: int
    replicated: Compiled
    sharded: Compiled
    said: str
    batch: int | None

    def to_json(self) -> str:
        """Everything, as indented JSON text."""
        settings = self.settings
        found = {
            **{"topology": settings.topology, "replicas": self.replicas},
            **{"model": settings.model, "script": settings.script},
            **{"optimizer": settings.optimizer, "batch": self.batch},
            **{"gather_dtype": settings.gather_dtype, "pass": self.said},
            **{mode: getattr(self, mode).to_json() for mode in MODES},
        }
        return json.dumps(found, indent=2) + "\n"


def compare(settings: Settings, folder: pathlib.Path, say: Callable[[str], None]) -> Comparison:
    """Traces and compiles both steps, one after the other; where they are the same, one of them.

    Args:
        settings: What to compile.
        folder: Where `replicated.hlo` and `sharded.hlo` go, the optimized texts, and what lies
            between the processes.
        say: Called with what happens, a line at a time.

    Raises:
        MissingCompilerError: JAX or libtpu is not installed.
        OptionError: There is no such model.
        StepError: A step could not be traced, or neither could be compiled.
        WorkerError: A process failed in a way that nobody foresaw.
    """
    children.check_compiler()
    replicas = settings.slice.num_devices
    say(f"tracing the replicated step for {replicas} replicas")
    traced = _trace(settings, "replicated", folder)
    say(f"compiling it for {settings.topology}")
    replicated = _compile(settings, "replicated", folder, traced)
    say(f"tracing the sharded step for {replicas} replicas")
    traced_sharded = _trace(settings, "sharded", folder)
    if traced_sharded["fingerprint"] == traced["fingerprint"]:
        say("it is the same step: nothing was sharded")
        sharded = _same(replicated, folder, traced_sharded)
    else:
        say(f"compiling it for {settings.topology}")
        sharded = _compile(settings, "sharded", folder, traced_sharded)
    if replicated.figures is None and sharded.figures is None:
        raise StepError(sharded.error)
    said, batch = traced_sharded["said"], traced_sharded["batch"]
    return Comparison(settings, replicas, replicated, sharded, said, batch)


def _trace(settings: Settings, mode: str, folder: pathlib.Path) -> dict[str, Any]:
    with children.tracer() as worker:
        traced: dict[str, Any] = worker.ask(
            "trace",
            settings=dataclasses.asdict(settings),
            sharded=mode == "sharded",
            hlo=str(folder / f"{mode}.pb"),
            scopes=str(folder / f"{mode}_scopes.json"),
        )
    if "error" in traced:
        raise StepError(traced["error"])
    return traced


def _same(replicated: Compiled, folder: pathlib.Path, traced: dict[str, Any]) -> Compiled:
    """What compiling the very same step again would give."""
    if replicated.figures is not None:
        shutil.copy(folder / "replicated.hlo", folder / "sharded.hlo")
    seconds = {"trace": traced["seconds"], "compile": 0.0}
    return dataclasses.replace(replicated, seconds=seconds)


def _compile(
    settings: Settings, mode: str, folder: pathlib.Path, traced: dict[str, Any]
) -> Compiled:
    chip = CHIPS[settings.slice.generation]
    optimized = folder / f"{mode}.hlo"
    with children.compiler() as worker:
        answer = worker.ask(
            "compile",
            hlo=str(folder / f"{mode}.pb"),
            topology=settings.topology,
            chip_config=chip.config,
            optimized=str(optimized),
        )
    seconds = {"trace": traced["seconds"], "compile": answer["seconds"]}
    if answer["error"]:
        return Compiled(None, answer["requested"], answer["error"], seconds)
    names = json.loads((folder / f"{mode}_scopes.json").read_text(encoding="utf-8"))
    scopes = {name: Scope(scope) for name, scope in names.items()}
    text = optimized.read_text(encoding="utf-8")
    figures = figures_of(text, Memory(**answer["memory"]), chip, scopes)
    return Compiled(figures, answer["requested"], "", seconds)
