"""Names of emitted ops: `wu_shard/<variable>/<step>/...`, readable in profiles and graph viewers.

The variable is the weight, or for what is done to a slot alone, the slot. Where several weights
share an op, `bucket_0`, `sums_0`, `left_whole`, `reads` or `staggered` stands in its place.
Constants are shared by everything and lie in `wu_shard/constant`. An op that takes the whole place
of one of the program's own has that one's name in the end, as an op of an update has that does on
the shard what it did; what goes with it has that name before all this, or ends in
`/wu_shard_...`. A name that the graph has already gets a number
(`graph.builder.GraphBuilder.unique`).
"""

from __future__ import annotations

import re

SCOPE = "wu_shard"

# Gradients that are summed as before, as others of their pack are not.
LEFT_WHOLE = "left_whole"

# Replicas that begin one after the other.
STAGGERED = "staggered"

# What is done to a variable.
STEPS = frozenset(
    (
        # The shape of a gradient is checked where nothing proves it.
        "gradient_shape",
        # Sums hold all of a replica's gradients, so that another takes its batch.
        "summed",
        # Gradients become shards of their sum, the sum on its owner, or rows of a table.
        *("reduce_scatter", "reduce", "entries"),
        # The update, with what parts of it need whole.
        *("update", "all_reduce", "matrix_function", "branch", "gather_rows"),
        # What all replicas have to agree about first.
        "agreed",
        # Its results, put together and written.
        *("all_gather", "broadcast", "exchange", "scatter", "assign"),
        # A variable in shards: its handles and shards, and what others read and write of it.
        *("shard", "read", "write"),
    )
)


def scope_of(variable: str, what: str) -> str:
    """The name scope for doing `what` to `variable`, made of characters TensorFlow allows.

    Args:
        variable: The variable's name, or what stands for several.
        what: One of `STEPS`, a number behind it where there is one for each replica, and what of
            it.
    """
    return f"{SCOPE}/{re.sub(r'[^A-Za-z0-9_./-]', '_', variable)}/{what}"


def in_place_of(name: str, scope: str) -> str:
    """The name scope for what computes a shard of what an op computed.

    The old name comes first, for the order that `grappler_order` is about.

    Args:
        name: The old op's name.
        scope: What `scope_of` gave.
    """
    return f"{name}/{scope}"
