"""TensorFlow's HLO as a StableHLO module that a PJRT compiler takes.

Runs where JAX is and TensorFlow is not. Two things stand between the two: the bridge puts an
`mhlo.copy` before each new value of a variable, which a StableHLO parser rejects, and it says which
argument shares memory with which result in an attribute that nobody reads any more.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Any

from jax._src.interpreters import mlir
from jax._src.lib import xla_client
from jax._src.lib.mlir import ir

_ALIASES = "mhlo.input_output_alias"
# PJRT's name, not TensorFlow's.
_SHARED = "tf.aliasing_output"

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
        _drop_copies(module)
        attributes = module.operation.attributes
        if _ALIASES in attributes:
            _mark_shared_memory(_main(module), attributes[_ALIASES])
        for name in [name for name in attributes if name.startswith("mhlo.")]:
            del attributes[name]
        module.operation.verify()
    return module


def shared_memory_of(module: Any) -> list[tuple[int, int]]:
    """Each argument that shares its memory with a result, by number, and the result's number."""
    with module.context:
        main = _main(module)
        if "arg_attrs" not in main.attributes:
            return []
        return [
            (number, ir.IntegerAttr(attributes[_SHARED]).value)
            for number, attributes in enumerate(main.attributes["arg_attrs"])
            if _SHARED in attributes
        ]


def collectives_of(module: Any) -> dict[str, int]:
    """How many collectives of each kind a module holds, by XLA's name, such as "all-reduce".

    In what `main` calls, each function counted once: the bodies of loops and branches lie in the
    module a second time, where nobody calls them.
    """
    counts: collections.Counter[str] = collections.Counter()
    with module.context:
        functions = {_name(function): function for function in _functions(module)}
        waiting, seen = ["main"], {"main"}
        while waiting:
            for operation in _operations(functions[waiting.pop()]):
                dialect, _, name = operation.name.partition(".")
                if dialect == "stablehlo" and name in _COLLECTIVES:
                    counts[name.replace("_", "-")] += 1
                elif operation.name == "func.call":
                    called = ir.FlatSymbolRefAttr(operation.attributes["callee"]).value
                    if called not in seen:
                        seen.add(called)
                        waiting.append(called)
    return dict(counts)


def _operations(operation: Any) -> Iterator[Any]:
    """Everything in an operation's regions, however deep."""
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield inner.operation
                yield from _operations(inner.operation)


def _functions(module: Any) -> list[Any]:
    return [function.operation for function in module.body.operations]


def _name(function: Any) -> str:
    return str(ir.StringAttr(function.attributes["sym_name"]).value)


def _main(module: Any) -> Any:
    return next(function for function in _functions(module) if _name(function) == "main")


def _drop_copies(module: Any) -> None:
    """Lets the readers of every copy read what it copies."""
    copies = [o for o in _operations(module.operation) if o.name == "mhlo.copy"]
    for copy in copies:
        copy.results[0].replace_all_uses_with(copy.operands[0])
        copy.erase()


def _mark_shared_memory(main: Any, aliases: Any) -> None:
    function_type = ir.TypeAttr(main.attributes["function_type"]).value
    arguments: list[dict[str, Any]] = [{} for _ in function_type.inputs]
    number = ir.IntegerType.get_signless(32)
    for alias in aliases:
        argument = ir.IntegerAttr(alias["alias"]["parameter_number"]).value
        # A module with one result has no tuple around it, and so no index into one.
        place = list(ir.DenseI64ArrayAttr(alias["output_index"])) or [0]
        arguments[argument][_SHARED] = ir.IntegerAttr.get(number, place[0])
    main.attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(a) for a in arguments])
