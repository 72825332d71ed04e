"""The ops and attributes that TPU programs are made of, each named once."""

from __future__ import annotations

from typing import Any

from tf_wu_shard.graph.op import attribute_in, decoded

# Says how a program is replicated.
METADATA = "TPUReplicateMetadata"

# The attribute that names the program that an op belongs to.
PROGRAM = "_tpu_replicate"

# The attribute of what a program leaves to its host.
ON_HOST = "_xla_outside_compilation"

# Brings what lies outside of a program into it.
REPLICATED_INPUT = "TPUReplicatedInput"

# Brings what a program yields out of it, each replica's by itself.
REPLICATED_OUTPUT = "TPUReplicatedOutput"

# How gradients are summed.
SUM = "CrossReplicaSum"

# Their results are equal on all replicas of a group whatever enters them.
REDUCTIONS = frozenset({SUM, "XlaAllReduce"})

# Gives all replicas what one of them has, or each of them something else.
TOLD = "AllToAll"

# Their results differ between replicas though equal values enter them.
OWN = frozenset({TOLD, "CollectivePermute", "XlaReduceScatter", "XlaReplicaId"})

# What comes of them is made of what other replicas have, or of which replica it is.
ACROSS_REPLICAS = REDUCTIONS | OWN | {"XlaCallModule", "XlaSharding", "XlaHostCompute"}


def is_in(node: Any, program: str) -> bool:
    """Whether a node is in a TPU program, by its name; all nodes are in that of no name."""
    return not program or decoded(program_of(node)) == program


def program_of(node: Any) -> bytes:
    """Name of the TPU program that a node says it is in, or b""."""
    return bytes(attribute_in(node.attr, PROGRAM).s)
