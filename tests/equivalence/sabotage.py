"""A rewrite that is wrong on purpose, to see that the comparison would catch one.

It breaks as a prototype once did: of a weight that is written twice in a step, AdamW's decay and
then its update, only the last write counts.
"""

from __future__ import annotations

from typing import Any

from tf_wu_shard.rules.writes import is_plain_write
from tf_wu_shard.weight_update.rewrite.body_emitter import BodyEmitter


def lose_first_writes() -> None:
    """From now on, every rewrite in this process loses all writes of a weight but the last."""
    right = BodyEmitter._write

    def wrong(self: Any, op: Any) -> None:
        writes = [
            o for o in self.update.body if o.variable == op.variable and is_plain_write(o.type)
        ]
        if op.variable in self.versions and op is not writes[-1]:
            name = op.ops[self._replica]
            self._replace_weight(op.variable, name, self._present(op.variable, name))
        else:
            right(self, op)

    BodyEmitter._write = wrong  # type: ignore[method-assign]
