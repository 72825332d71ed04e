"""Graphs as text, for tests that need no TensorFlow: one op a line.

    read# = ReadVariableOp(w#) [3,4] @d# ^assign#
    sum#  = CollectiveReduceV2(g#, size, key) {merge_op=Add final_op=Id} [12] @d#

A line with `#` stands for one op on each replica, `#` being the replica's number. Between the
brackets stands the shape of each output, `[?]` where it is unknown; element types are float32
unless the attribute T says otherwise, by its DataType number. A constant's `value` is a number, or
the sizes of its dimensions, as in 1x4.
"""

from __future__ import annotations

import dataclasses
import re
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tf_wu_shard.dtypes import FLOAT32, INT32
from tf_wu_shard.graph.op import Value, parse_value
from tf_wu_shard.graph.view import GraphView, VariableRef
from tf_wu_shard.grounds.dialect import CarriedReduction
from tf_wu_shard.grounds.in_process.recognise import recognise_in_process
from tf_wu_shard.grounds.tpu.all_gather_module import element_type
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.replicas import in_this_process, of_one_program

_LINE = re.compile(
    r"(?P<name>\S+) += (?P<type>\w+)\((?P<inputs>.*?)\)"
    r"(?: \{(?P<attrs>.*?)\})?(?P<shapes>(?: \[[-\d,?]*\])*)"
    r"(?: @(?P<device>\S+))?(?P<controls>(?: \^\S+)*)"
)

_STATEFUL = frozenset(
    {"ReadVariableOp", "VarHandleOp", "AssignVariableOp", "AssignAddVariableOp"}
    | {"AssignSubVariableOp", "ResourceApplyGradientDescent", "ResourceApplyMomentum"}
    | {"CollectiveReduceV2", "RandomUniform", "StatefulPartitionedCall", "Print", "ResourceGather"}
    | {"ResourceScatterAdd", "ResourceScatterSub", "ResourceScatterMul", "CollectiveGatherV2"}
    | {
        "LogUniformCandidateSampler",
        "ResourceStridedSliceAssign",
        "ResourceSparseApplyMomentum",
        "If",
        "While",
        "VarIsInitializedOp",
    }
)


@dataclasses.dataclass
class Attribute:
    """An attribute that answers to every name it may be read by."""

    text: str
    shapes: tuple[Any, ...] = ()

    @property
    def type(self) -> int:
        return int(self.text)

    i = type

    @property
    def b(self) -> bool:
        return self.type != 0

    @property
    def s(self) -> bytes:
        return self.text.encode()

    @property
    def tensor(self) -> Any:
        if "." in self.text:
            none = types.SimpleNamespace(dim=[])
            held = [float(self.text)]
            return types.SimpleNamespace(
                dtype=FLOAT32, float_val=held, tensor_content=b"", tensor_shape=none
            )
        sizes = self.text.split("x")
        dims = [types.SimpleNamespace(size=int(size)) for size in sizes]
        return types.SimpleNamespace(
            dtype=INT32,
            int_val=[int(sizes[0])],
            int64_val=[],
            tensor_content=b"",
            tensor_shape=types.SimpleNamespace(dim=dims if len(dims) > 1 else []),
        )

    @property
    def func(self) -> Any:
        return types.SimpleNamespace(name=self.text.removeprefix("&"))

    @property
    def list(self) -> Any:
        return types.SimpleNamespace(shape=self.shapes, func=(), type=())

    def HasField(self, name: str) -> bool:
        return name == "func" and self.text.startswith("&")

    def SerializeToString(self, *, deterministic: bool = False) -> bytes:
        return self.text.encode()


class Attributes(dict[str, Attribute]):
    """Like a protobuf map, but asking for what is not there fails: it would change the graph."""

    def GetEntryClass(self) -> Any:
        return lambda: types.SimpleNamespace(value=Attribute("0"))


class _ReadHalf:
    """The read half of the dialect of replicas in one process, without its TensorFlow."""

    def __init__(
        self, replicas: int = 2, uneven: object | None = None, stacks: object | None = None
    ) -> None:
        self.replicas = in_this_process(f"d{number}" for number in range(replicas))
        self.uneven = uneven
        self.stacks = stacks

    def recognise(self, view: GraphView) -> tuple[list[CarriedReduction], list[Refusal]]:
        return recognise_in_process(view, self.replicas)


class _OneProgram(_ReadHalf):
    """The read half of the dialect of a TPU program that two replicas run."""

    def __init__(self, stacks: object) -> None:
        super().__init__(stacks=stacks)
        self.replicas = of_one_program(2)

    def recognise(self, view: GraphView) -> tuple[list[CarriedReduction], list[Refusal]]:
        sums = [op for op in view if op.type == "CrossReplicaSum"]
        found = [CarriedReduction((op.inputs[0],), (Value(op.name),), 1, (op.name,)) for op in sums]
        return found, []


def dialect_of(replicas: int) -> Any:
    """What recognises reductions of replicas on devices d0, d1, ...: enough to analyse with."""
    return _ReadHalf(replicas)


DIALECT: Any = dialect_of(2)
OWNERS_DIALECT: Any = _ReadHalf(uneven=object())
STACKS_DIALECT: Any = _OneProgram(
    stacks=types.SimpleNamespace(carries=lambda dtype: element_type(dtype) is not None)
)


def node(line: str) -> Any:
    """One line as a NodeDef."""
    match = _LINE.fullmatch(line.strip())
    assert match is not None, f"no op: {line!r}"
    shapes = tuple(_shape(s) for s in re.findall(r"\[(.*?)\]", match["shapes"]))
    attributes = Attributes(
        {k: Attribute(v) for k, _, v in (a.partition("=") for a in (match["attrs"] or "").split())}
    )
    attributes.setdefault("T", Attribute("1"))
    attributes["_num"] = Attribute(str(max(1, len(shapes))))
    attributes["_output_shapes"] = Attribute("", shapes)
    inputs = [i.strip() for i in match["inputs"].split(",") if i.strip()]
    return types.SimpleNamespace(
        name=match["name"],
        op=match["type"],
        input=inputs + match["controls"].split(),
        device=match["device"] or "",
        attr=attributes,
    )


def _shape(text: str) -> Any:
    dims = [] if text == "?" else [int(d) for d in text.split(",") if d]
    return types.SimpleNamespace(
        unknown_rank=text == "?", dim=[types.SimpleNamespace(size=d) for d in dims]
    )


def _function(name: str, arguments: str, body: str, returned: str) -> Any:
    signature = types.SimpleNamespace(
        name=name,
        input_arg=[types.SimpleNamespace(name=a) for a in arguments.split()],
        output_arg=[types.SimpleNamespace(name=f"o{i}") for i in range(len(returned.split()))],
    )
    nodes = [node(line) for line in body.splitlines() if line.strip()]
    ret = {f"o{i}": r for i, r in enumerate(returned.split())}
    return types.SimpleNamespace(signature=signature, node_def=nodes, ret=ret)


def op_def(op_type: str) -> Any:
    """What TensorFlow's registry would say."""
    output = types.SimpleNamespace(
        name="output", type_list_attr="", type_attr="T", number_attr="_num", type=0
    )
    return types.SimpleNamespace(
        name=op_type, is_stateful=op_type in _STATEFUL, input_arg=[], output_arg=[output], attr=[]
    )


def view_of(
    text: str,
    *,
    replicas: int = 2,
    variables: Mapping[str, tuple[int, ...]] | None = None,
    trainable: Iterable[str] = ("w",),
    outputs: Sequence[str] = (),
    controls: Sequence[str] = (),
    functions: Mapping[str, tuple[str, str, str]] | None = None,
    refs: Mapping[str, VariableRef] | None = None,
) -> GraphView:
    """A view of a graph written as text.

    Args:
        text: The ops.
        replicas: How often a line with `#` stands.
        variables: Shapes of mirrored variables by key; component r's handle is the op `key` r.
        trainable: Keys of the trainable ones.
        outputs: The returned values.
        controls: Names of the ops that must run.
        functions: By name: the names of the arguments, the body, and what is returned.
        refs: More variables, by the op that yields the handle.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    spread = [
        line.replace("#", str(r))
        for line in lines
        for r in (range(replicas) if "#" in line else (0,))
    ]
    known = {
        f"{key}{r}": VariableRef(key, r, replicas, shape, 1, True, f"d{r}", key in trainable)
        for key, shape in (variables or {}).items()
        for r in range(replicas)
    }
    declared = [f"{handle} = Placeholder() {{T=20}}" for handle in {**known, **(refs or {})}]
    graph_def = types.SimpleNamespace(
        node=[node(line) for line in declared + spread],
        library=types.SimpleNamespace(
            function=[_function(n, *parts) for n, parts in (functions or {}).items()]
        ),
        SerializeToString=lambda deterministic: "\n".join(spread).encode(),
    )
    return GraphView(
        graph_def,
        variables={**known, **(refs or {})},
        outputs=[parse_value(o) for o in outputs],
        control_outputs=controls,
        op_def=op_def,
    )
