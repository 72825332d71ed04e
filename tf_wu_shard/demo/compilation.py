"""What the TPU compiler makes of a train step, sharded and not: the part of the demo without a run.

One compile of a Transformer for a slice of 16 chips, with no TPU. It does not train and measures
nothing; `wu-shard tpu-compile` does the same for any model, script and slice.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable

from tf_wu_shard.errors import WuShardError
from tf_wu_shard.tpu_compiler import comparison
from tf_wu_shard.tpu_compiler.children import MissingCompilerError
from tf_wu_shard.tpu_compiler.comparison import Comparison
from tf_wu_shard.tpu_compiler.settings import Settings


@dataclasses.dataclass(frozen=True)
class Compilation:
    """A step that was compiled, or why it was not.

    Attributes:
        settings: What was to be compiled.
        compared: Both steps; None where they were not compiled.
        missing: What to install, "" where nothing is missing.
        failure: What went wrong, "" where nothing did.
    """

    settings: Settings
    compared: Comparison | None = None
    missing: str = ""
    failure: str = ""

    @property
    def problems(self) -> tuple[str, ...]:
        """What keeps this from being a success; a compiler that is not installed does not."""
        if self.missing:
            return ()
        found = [self.failure] if self.failure else []
        if self.compared is not None:
            sharded = self.compared.sharded
            found += [sharded.error] if sharded.error else []
            if not sharded.requested.get("reduce-scatter"):
                found.append("the flag was on and the step has no reduce-scatter")
            if sharded.turned_back:
                found.append(f"{sharded.turned_back} reduce-scatters turned back into all-reduces")
        return tuple(f"{self.settings.model} on {self.settings.topology}: {one}" for one in found)


def compile_step(quick: bool, folder: pathlib.Path, say: Callable[[str], None]) -> Compilation:
    """Compiles the demo's step.

    Args:
        quick: Whether to take the smallest model and slice.
        folder: Where the optimized programs go; made if it is missing.
        say: Called with what happens, a line at a time.
    """
    if quick:
        settings = Settings(model="mlp", topology="v5e:2x2")
    else:
        settings = Settings(model="transformer_small", topology="v5e:4x4")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return Compilation(settings, comparison.compare(settings, folder, say))
    except MissingCompilerError as error:
        return Compilation(settings, missing=str(error))
    except WuShardError as error:
        return Compilation(settings, failure=str(error))
