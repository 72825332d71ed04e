"""TensorFlow's HLO as a StableHLO module that a PJRT compiler takes.

Runs where JAX is and TensorFlow is not. Two things stand between the two: the bridge puts an
`mhlo.copy` before each new value of a variable, which a StableHLO parser rejects, and it says which
argument shares memory with which result in an attribute that nobody reads any more.
"""

from __future__ import annotations

import collections
from typing import Any

from jax._src.interpreters import mlir
from jax._src.lib import xla_client
from jax._src.lib.mlir import ir

_ALIASES = "mhlo.input_output_alias"

_COLLECTIVES = frozenset(
    {
        *("all_reduce", "all_gather", "reduce_scatter", "all_to_all"),
        *("collective_permute", "collective_broadcast"),
    }
)


def stablehlo_of(hlo: bytes) -> Any:
    """Turns a module of TensorFlow's into StableHLO.

    Args:
        hlo: A serialized HloModuleProto, not optimized.

    Returns:
        An MLIR module; a variable that is written is an argument marked with the number of the
        result that takes its memory, so that the compiler may write it in place.
    """
    with mlir.make_ir_context():
        module = ir.Module.parse(xla_client._xla.mlir.hlo_to_stablehlo(hlo))
        main = next(
            operation.operation
            for operation in module.body.operations
            if operation.operation.attributes["sym_name"] == ir.StringAttr.get("main")
        )
        _drop_copies(module.operation)
        attributes = module.operation.attributes
        if _ALIASES in attributes:
            _mark_shared_memory(main, attributes[_ALIASES])
        for name in [name for name in attributes if name.startswith("mhlo.")]:
            del attributes[name]
        module.operation.verify()
    return module


def collectives_of(module: Any) -> dict[str, int]:
    """How many collectives of each kind a module holds, by XLA's name, such as "all-reduce"."""
    counts: collections.Counter[str] = collections.Counter()
    _count_collectives(module.operation, counts)
    return dict(counts)


def _count_collectives(operation: Any, counts: collections.Counter[str]) -> None:
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                dialect, _, name = inner.operation.name.partition(".")
                if dialect == "stablehlo" and name in _COLLECTIVES:
                    counts[name.replace("_", "-")] += 1
                _count_collectives(inner.operation, counts)


def _drop_copies(operation: Any) -> None:
    """Lets the readers of every copy read what it copies, in nested regions too."""
    for region in operation.regions:
        for block in region.blocks:
            for inner in list(block.operations):
                inner = inner.operation
                if inner.name == "mhlo.copy":
                    inner.results[0].replace_all_uses_with(inner.operands[0])
                    inner.erase()
                else:
                    _drop_copies(inner)


def _mark_shared_memory(main: Any, aliases: Any) -> None:
    """Writes `tf.aliasing_output` at the arguments; the name is PJRT's, not TensorFlow's."""
    function_type = ir.TypeAttr(main.attributes["function_type"]).value
    arguments: list[dict[str, Any]] = [{} for _ in function_type.inputs]
    number = ir.IntegerType.get_signless(32)
    for alias in aliases:
        argument = ir.IntegerAttr(alias["alias"]["parameter_number"]).value
        # A module with one result has no tuple around it, and so no index into one.
        place = list(ir.DenseI64ArrayAttr(alias["output_index"])) or [0]
        arguments[argument]["tf.aliasing_output"] = ir.IntegerAttr.get(number, place[0])
    main.attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(a) for a in arguments])
