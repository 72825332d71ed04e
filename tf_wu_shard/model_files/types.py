"""What a model's files say, as frozen data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tf_wu_shard.model_files.source_lines import SourceLines


@dataclasses.dataclass(frozen=True)
class ModelVariable:
    """A variable of a model.

    Attributes:
        key: Its name; where several have one name, a number makes it unique.
        shape: Its shape, or None where it is not fully known.
        dtype: The DataType enum's number; 0 where it is not known.
        trainable: Whether the model trains it; None where the file does not say.
        devices: Of a variable of several replicas whose components the file keeps, the device of
            each; else ().
        mirrored: Whether its components hold the same value by contract.
    """

    key: str
    shape: tuple[int, ...] | None
    dtype: int
    trainable: bool | None
    devices: tuple[str, ...] = ()
    mirrored: bool = True


@dataclasses.dataclass(frozen=True)
class SlotRelation:
    """Says that an optimizer keeps one variable for another.

    Attributes:
        variable: Key of the weight.
        name: What the optimizer calls the slot, such as "momentums".
        slot: Key of the slot.
    """

    variable: str
    name: str
    slot: str


@dataclasses.dataclass(frozen=True)
class BoundFunction:
    """A function whose last arguments are known.

    Attributes:
        name: Its name in the library.
        bound: For each of its last arguments the key of the variable whose handle it is; "" for
            anything else.
    """

    name: str
    bound: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Model:
    """A model as its files have it.

    Attributes:
        form: What was read, such as "SavedModel".
        graph_def: Its graph, which also holds the functions; never changed.
        functions: The FunctionDefs by name.
        bound: The functions that the model offers, and what their last arguments are.
        variables: Its variables by key.
        handles: Names of ops of the graph that yield handles, each with the variable's key.
        slots: Which variables an optimizer keeps for which.
        train_ops: Names of the ops of the graph that the file says train the model.
        notes: What could not be read, or contradicts itself; none where all was read.
        source_lines: Which line of a program made an op; None where the files do not say.
    """

    form: str
    graph_def: Any
    functions: Mapping[str, Any]
    bound: tuple[BoundFunction, ...]
    variables: Mapping[str, ModelVariable]
    handles: Mapping[str, str]
    slots: tuple[SlotRelation, ...]
    train_ops: tuple[str, ...]
    notes: tuple[str, ...]
    source_lines: SourceLines | None = None
