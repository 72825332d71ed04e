"""The answer about a model, as frozen data; text and JSON are made of it."""

from __future__ import annotations

import dataclasses

from tf_wu_shard.inspection.answers.graph_diff import GraphDiff
from tf_wu_shard.report.report import Bytes, Report


@dataclasses.dataclass(frozen=True)
class PictureTensor:
    """A value on one replica.

    Attributes:
        shape: Its shape.
        dtype: Its element type, such as "float32".
        bytes: How many it has.
    """

    shape: tuple[int, ...]
    dtype: str
    bytes: int


@dataclasses.dataclass(frozen=True)
class PictureGradient:
    """A gradient that enters the update.

    Attributes:
        op: Name of the op that yields it on a replica.
        sum_op: Name of the op that sums it over the replicas; "" where the graph has none, as it
            was traced on one device.
        whole: The gradient.
        shard: What a replica has of it after a reduce-scatter.
    """

    op: str
    sum_op: str
    whole: PictureTensor
    shard: PictureTensor


@dataclasses.dataclass(frozen=True)
class PictureOp:
    """An op of the update; by the way it is ordered, after all that it reads.

    Attributes:
        name: Its name.
        type: Its type, such as "AssignAddVariableOp".
        reads: Positions of the ops of the update whose results it reads.
        gradients: Positions of the gradients that it reads.
        follows: Position of the op that wrote the variable that it reads, or None.
        part: The number, from 0, of the first write to which it contributes.
        writes_for: The variable that is written there; "" where it contributes to no write.
        variable: The variable that it reads or writes, or "".
        writes: Whether it writes that variable.
        whole: Its result, or what it writes, where every replica does the whole update; None where
            it has none or its shape is not recorded.
        shard: The same on one replica's shard.
        summed: Whether it sums over shards, so that the replicas exchange its result.
    """

    name: str
    type: str
    reads: tuple[int, ...]
    gradients: tuple[int, ...]
    follows: int | None
    part: int
    writes_for: str
    variable: str
    writes: bool
    whole: PictureTensor | None
    shard: PictureTensor | None
    summed: bool


@dataclasses.dataclass(frozen=True)
class UpdatePicture:
    """One update, without and with sharding.

    Attributes:
        variable: Its weight.
        replicas: How many share it.
        layout: How it is cut.
        owned: Whether one replica does it whole.
        gradients: What enters it.
        ops: Its ops.
        weight: The weight.
        weight_shard: What a replica updates of it.
        gathered: What the weight is put together as, where a replica needs it whole.
        in_shards: The variables that are kept in shards between steps.
        weight_in_shards: Whether it is kept in shards and put together where the step reads it;
            else it is put together after the update.
    """

    variable: str
    replicas: int
    layout: str
    owned: bool
    gradients: tuple[PictureGradient, ...]
    ops: tuple[PictureOp, ...]
    weight: PictureTensor
    weight_shard: PictureTensor
    gathered: PictureTensor
    in_shards: tuple[str, ...]
    weight_in_shards: bool


# The form of what is no file: a script that was run up to its first train step.
SCRIPT = "Script"


@dataclasses.dataclass(frozen=True)
class UpdateAnswer:
    """A weight update.

    Attributes:
        variable: Its weight.
        optimizer: What it was recognised as; "unknown" where the ops do not prove it.
        because: What proves it, or what is missing.
        slots: Its slots' names.
        shape: The weight's shape.
        dtype: The weight's element type.
        gradient: The value that is its gradient, summed or to be.
        bytes: How many the weight has.
    """

    variable: str
    optimizer: str
    because: str
    slots: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    gradient: str
    bytes: int = 0


@dataclasses.dataclass(frozen=True)
class RefusedAnswer:
    """A weight whose update is left alone because it was not understood.

    Attributes:
        variable: The weight; where none was found, the op of the gradient.
        shape: Its shape; None where nothing shows it.
        dtype: Its element type; "" where nothing shows it.
        bytes: How many it has; None where that is not known.
        slots: Its slots' names, as far as the files or the step's graph show them.
        slot_bytes: Bytes of these slots.
        slots_told: Whether these are all.
        is_summed: Whether its gradient was found, and so counts among the bytes received.
    """

    variable: str
    shape: tuple[int, ...] | None
    dtype: str
    bytes: int | None
    slots: tuple[str, ...]
    slot_bytes: int
    slots_told: bool
    is_summed: bool


@dataclasses.dataclass(frozen=True)
class MemoryRow:
    """What the fullest of some number of replicas holds, without and with sharding.

    Attributes:
        replicas: How many.
        weights: Bytes of the weights that the step updates, those left alone too.
        slots: Bytes of their slots; of what is left alone, those that are known.
    """

    replicas: int
    weights: Bytes
    slots: Bytes


@dataclasses.dataclass(frozen=True)
class FunctionAnswer:
    """The answer about one function.

    Attributes:
        name: Its name.
        trains: Whether it writes weights.
        verdict: The answer in a line.
        writes: How many variables it writes.
        reductions: How many gradients it sums over replicas.
        groups: Over which; "" where it sums none.
        assumed: Where no gradient is summed: how many were taken for summed, one device being N.
        updates: Its weight updates that can be shared.
        refused: The weights whose updates were not understood.
        report: What the plan does, for the number of replicas that was asked for; its bytes count
            the refused weights and their slots too. None where there is nothing to plan.
        memory: For more and more replicas what they would hold.
        picture: One of the updates that would be shared; None where there is none to draw.
        source_lines: For ops at which something was refused, as far as the files show, the line of
            the program that made them.
        refusal: Why it was not looked at, or "".
        sparse: How many of its gradients are sparse: they are as large as what a batch looks up,
            and not counted among the bytes received.
        others: How many more variables of several elements it writes that are neither a weight nor
            a slot of a weight's shape: their bytes are not counted.
        trained_by: Where it trains by calling another of these functions and writes nothing itself:
            that one's name; else "".
        diff: Its graph before and after the rewrite; None where that was not asked for, or
            nothing trains.
    """

    name: str
    trains: bool
    verdict: str
    writes: int = 0
    reductions: int = 0
    groups: str = ""
    assumed: int = 0
    updates: tuple[UpdateAnswer, ...] = ()
    refused: tuple[RefusedAnswer, ...] = ()
    report: Report | None = None
    memory: tuple[MemoryRow, ...] = ()
    picture: UpdatePicture | None = None
    source_lines: tuple[tuple[str, str], ...] = ()
    refusal: str = ""
    sparse: int = 0
    others: int = 0
    trained_by: str = ""
    diff: GraphDiff | None = None


@dataclasses.dataclass(frozen=True)
class Inspection:
    """The answer about a model.

    Attributes:
        form: What was read, such as "SavedModel".
        variables: How many variables it has.
        functions: The answer about each function.
        notes: What could not be read or looked at: the answer is part of one where there are any.
        name: What to call the model, such as its folder's name; "" where nothing does.
        what_if: What is supposed, where the answer is about no function of the model; else "".
        how: What was done to find out.
    """

    form: str
    variables: int
    functions: tuple[FunctionAnswer, ...]
    notes: tuple[str, ...]
    name: str = ""
    what_if: str = ""
    how: str = "The model was read; nothing of it was run."

    @property
    def verdict(self) -> str:
        """The answer in a line."""
        if self.what_if:
            return self.what_if
        training = sum(f.trains and not f.trained_by for f in self.functions)
        if not training and any(f.writes for f in self.functions):
            return "no function is known to train"
        if not training:
            return "0 variable writes, nothing to shard"
        several = "function trains" if training == 1 else "functions train"
        return f"{training} {several}"
