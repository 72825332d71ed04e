"""What the analysis finds in a graph, as frozen data: the weight updates behind its gradients.

An update is one single-program *body*: each of its ops stands for one op in every replica's copy,
and each operand says what it is on the shard. Everything after the analysis reads only this.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping

from tf_wu_shard import refusals
from tf_wu_shard.graph.op import Value
from tf_wu_shard.placement import Partial, RowPlacement
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.rules.operation import LocalOp
from tf_wu_shard.step.reductions import GradientReduction


class OperandKind(enum.Enum):
    """What an operand of a body op is on the shard."""

    BODY = "result of an earlier body op"
    GRADIENT = "the shard of a reduced gradient"
    SCALAR = "one element, computed outside the body on every replica"
    SLICE = "a whole tensor that every replica holds, of which the shard is cut"
    BROADCAST = "a smaller tensor that every replica holds, broadcast over the shard"
    HANDLE = "the handle of a variable of the update"
    WHOLE = "a whole tensor that every replica computes"


@dataclasses.dataclass(frozen=True)
class Operand:
    """One operand of a body op.

    Attributes:
        kind: What it is.
        index: BODY: position of the op in the body. GRADIENT: the reduction's key.
        output: BODY: which of its results.
        values: SCALAR, SLICE, BROADCAST: per replica, the outside value. WHOLE: per replica, the
            value; in an update that one replica does, the body may compute it.
        variable: HANDLE: the variable's key.
        shape: SLICE, SCALAR and WHOLE, and whatever enters an op of a matrix function: the logical
            shape. BROADCAST: the shape that it is broadcast to.
    """

    kind: OperandKind
    index: int = -1
    values: tuple[Value, ...] = ()
    variable: str = ""
    shape: tuple[int, ...] = ()
    output: int = 0


@dataclasses.dataclass(frozen=True)
class RowBranch:
    """How the branches of an op that calls one of two functions are done on rows.

    One is done by each replica on its own rows. The other needs the table and the entries as a
    whole: where it is taken, all that it needs is put together, and each replica has those of its
    entries that name its rows.

    Attributes:
        local: The attribute that names the function which is done on rows.
        whole: The one that names the other function; "" where both are done on rows.
        operands: What each operand behind the first is; None of what every replica holds.
        results: What each result is.
    """

    local: str
    whole: str
    operands: tuple[RowPlacement | None, ...]
    results: tuple[RowPlacement, ...]


@dataclasses.dataclass(frozen=True)
class BodyOp:
    """One op of the body.

    Attributes:
        type: The op type.
        ops: Per replica, the name of the op that plays this part.
        operands: Its operands on the shard.
        variable: READ and WRITE: the key of the variable it touches; a fused update's weight.
        sum: What it sums, where it sums over elements of several shards. The rest of the body has
            its result from outside, as ops that stay where they are may have it.
        function: Which of the update's matrix functions it is an op of, or None.
        branch: How its branches are done, where it is a condition on rows of a table.
        gathered: Whether ops that stay where they are look at its result, the rows of all shards.
        local: What a shard computes in its place; None for the same op.
    """

    type: str
    ops: tuple[str, ...]
    operands: tuple[Operand, ...]
    variable: str = ""
    sum: Partial | None = None
    function: int | None = None
    branch: RowBranch | None = None
    gathered: bool = False
    local: LocalOp | None = None


@dataclasses.dataclass(frozen=True)
class FunctionValue:
    """What enters a matrix function in shards, or comes of it to be cut into them.

    Attributes:
        operand: Where it is: the result of a body op, or a gradient.
        dtype: Its element type, as a DataType number.
        size: How many elements it has: as many as the variable that it is cut like.
    """

    operand: Operand
    dtype: int
    size: int


@dataclasses.dataclass(frozen=True)
class MatrixFunction:
    """A run of the body's ops that need tensors whole (an inverse root, a matrix product).

    What enters it and what comes of it has as many elements as one of the update's variables, and
    is cut like it everywhere else.

    Attributes:
        first: Position in the body of its first op.
        count: How many ops it has; they follow each other.
        inputs: What enters it in shards.
        outside: What enters it besides, but for constants: the same on every replica.
        results: What others read of it.
        program: A digest of its ops, attributes, constants and shapes: functions of one program
            compute the same of their inputs and outside values.
        step: How many others, and sums over shards, at most stand one behind the other on the way
            to it.
    """

    first: int
    count: int
    inputs: tuple[FunctionValue, ...]
    outside: tuple[Operand, ...]
    results: tuple[FunctionValue, ...]
    program: str
    step: int = 0


@dataclasses.dataclass(frozen=True)
class UpdatedVariable:
    """A variable that the body writes.

    Attributes:
        key: Its key in the view.
        handles: Per replica, the op that yields its handle.
        shape: The logical shape.
        dtype: The DataType enum's number.
        is_slot: Whether only the body touches it, so that it may live in shards between steps.
        trainable: Whether the model trains it; what is not is the optimizer's own.
        read_as: The element type, as a DataType number, that every read outside of the body is
            cast to at once; the variable's own where they are not.
        versions: Of a weight, the numbers of writes by the body after which it has to be whole:
            something else reads it then, before the next of these writes. The last number is that
            of all writes. Of a slot, ().
    """

    key: str
    handles: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: int
    is_slot: bool
    trainable: bool = False
    read_as: int = 0
    versions: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class WeightUpdate:
    """One weight (rarely several, where their updates are entangled) and how it is updated.

    Attributes:
        variables: All variables the body writes; weights first, then slots.
        reductions: Keys of the gradient reductions that feed it.
        body: The single-program body, each op after its operands, accesses of one variable in the
            order in which they happen.
        devices: Per replica, the device of the replica.
        whole: Whether one replica has to do it, on whole variables, as not all of its ops can be
            computed in shards. Its variables may be of any shapes, and others may look at what its
            body computes.
        functions: The parts of its body that need whole tensors, where the rest does not.
        compiled_in: Names of the calls of functions that XLA compiles which its body was written
            out of, see `program.compiled_calls`.
    """

    variables: tuple[UpdatedVariable, ...]
    reductions: tuple[int, ...]
    body: tuple[BodyOp, ...]
    devices: tuple[str, ...]
    whole: bool = False
    functions: tuple[MatrixFunction, ...] = ()
    compiled_in: frozenset[str] = frozenset()

    @property
    def weights(self) -> tuple[UpdatedVariable, ...]:
        """The variables whose whole value the step needs."""
        return tuple(v for v in self.variables if not v.is_slot)

    @property
    def slots(self) -> tuple[UpdatedVariable, ...]:
        """The variables that only the body touches."""
        return tuple(v for v in self.variables if v.is_slot)

    @property
    def whole_slots(self) -> tuple[UpdatedVariable, ...]:
        """The optimizer's own variables that the step also reads outside the update."""
        return tuple(v for v in self.variables[1:] if not v.is_slot and not v.trainable)

    @property
    def outside(self) -> set[Value]:
        """All that enters its body from outside, of all replicas."""
        return {value for op in self.body for operand in op.operands for value in operand.values}

    @property
    def name(self) -> str:
        """The name to report it by: its first weight's."""
        return self.variables[0].key

    @property
    def reported_weights(self) -> tuple[UpdatedVariable, ...]:
        """The weights that the report names: the first, and all that are trained."""
        first, *others = self.weights
        return (first, *(weight for weight in others if weight.trainable))

    @property
    def reported_slots(self) -> tuple[UpdatedVariable, ...]:
        """All variables that are the optimizer's own."""
        return (*self.slots, *self.whole_slots)


@dataclasses.dataclass(frozen=True)
class RefusedUpdate:
    """A variable whose gradient is reduced but whose update is left as it is.

    Attributes:
        variable: The variable's key, or the gradient's op where no variable was found.
        reductions: Keys of the gradient reductions that feed it.
        refusal: Why.
        variables: The weight, then its slots, of those that the graph shows with their shapes; no
            op is known to yield their handles. () where it shows not even the weight's shape.
    """

    variable: str
    reductions: tuple[int, ...]
    refusal: Refusal
    variables: tuple[UpdatedVariable, ...] = dataclasses.field(default=(), compare=False)

    @property
    def name(self) -> str:
        """The name to report it by."""
        return self.variable

    @property
    def reported_weights(self) -> tuple[UpdatedVariable, ...]:
        """The weight, where its shape is known; none of what is no weight.

        The replicas' sum or mean may also be kept in a variable that nobody trains, such as a queue
        of features. What has slots is trained, whatever it is declared to be.
        """
        is_weight = self.refusal.kind is not refusals.Updates.NOT_TRAINABLE or self.reported_slots
        return self.variables[:1] if is_weight else ()

    @property
    def reported_slots(self) -> tuple[UpdatedVariable, ...]:
        """Those of its slots that are known."""
        return self.variables[1:]


@dataclasses.dataclass(frozen=True)
class Analysis:
    """Everything the planner needs to know of a graph.

    Attributes:
        fingerprint: The graph's.
        num_replicas: How many replicas the graph holds; 0 where it reduces no gradient.
        reductions: The gradient reductions, by key.
        updates: The updates that can be sharded.
        refused: The variables that cannot, each with its reason.
        refusals: What was refused without a variable to name.
        untrained: Keys of trainable variables that only follow weights of layers.
    """

    fingerprint: str
    num_replicas: int
    reductions: tuple[GradientReduction, ...]
    updates: tuple[WeightUpdate, ...]
    refused: tuple[RefusedUpdate, ...]
    refusals: tuple[Refusal, ...]
    untrained: frozenset[str] = frozenset()

    def reductions_of(self, update: WeightUpdate) -> tuple[GradientReduction, ...]:
        """The reductions of an update's gradients."""
        return tuple(self.reductions[key] for key in update.reductions)

    def with_reasons(self, kept: Mapping[str, Refusal]) -> Analysis:
        """The same where updates in branches and calls that were kept say why these were.

        Args:
            kept: By the name of such a branch or call, why it was not written out.
        """

        def reason(refusal: Refusal) -> Refusal:
            why = kept[refusal.where]
            return why if isinstance(why.kind, refusals.Calls) else refusal.beside(why)

        refused = (
            dataclasses.replace(one, refusal=reason(one.refusal))
            if one.refusal.where in kept
            else one
            for one in self.refused
        )
        return dataclasses.replace(self, refused=tuple(refused))

    def without_updates(self, refusal: Refusal) -> Analysis:
        """The same with every update refused for one reason.

        Args:
            refusal: The reason.
        """
        refused = tuple(
            RefusedUpdate(weight.key, update.reductions, refusal)
            for update in self.updates
            for weight in update.weights
        )
        return dataclasses.replace(self, updates=(), refused=(*refused, *self.refused))


def all_entries(key: int) -> str:
    """The list of all entries of a gradient.

    Args:
        key: The reduction of its values.
    """
    return f"all entries of gradient {key}"
