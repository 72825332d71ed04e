"""Nothing of a TPU program runs before all of its inputs are there.

A TPU program is one op to its host: it starts when the last input has come. Its emulation is many
ops, of which those that take no input, a counter's increment among them, could run although the
input pipeline has ended and the step fails. They wait for the inputs here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tf_wu_shard.emulation.clones import SHARED_SCOPE, Clones


def wait_for_inputs(
    clones: Clones, entering: Iterable[Sequence[str]], around: Mapping[str, Any], name: str
) -> None:
    """Lets what takes nothing of the program's own wait until everything that enters it is there.

    Args:
        clones: The program's copies; those that take nothing of each other are made to wait.
        entering: The tensors that enter the program, by replica.
        around: The NodeDefs of the function that the program is a part of, by name.
        name: The name of the program, for the op that is waited for.
    """
    own = {node.name for node in clones.nodes}
    sources = dict.fromkeys(
        text.partition(":")[0] for tensors in entering for text in tensors if ":" in text
    )
    arriving = [source for source in sources if source in around and source not in own]
    if not arriving:
        return
    first = [
        node
        for node in clones.nodes
        if not any(text[0] != "^" and text.partition(":")[0] in own for text in node.input)
    ]
    ready = clones.add("NoOp", f"{SHARED_SCOPE}{name}/inputs", (), "", controls=arriving)
    for node in first:
        node.input.append(f"^{ready.name}")
