"""Functions that a TPU program calls, branches and loops included, and what becomes of the calls.

A function in which replicas exchange nothing is called once for each replica. One in which they do
becomes a single function of all replicas' arguments, and so does the branch or the loop around it;
all replicas must then take the same turn, as they must on a TPU, and an assertion holds them to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tf_wu_shard.emulation import attributes
from tf_wu_shard.emulation.clones import SHARED_SCOPE, Clones, Replica, replicas_on
from tf_wu_shard.emulation.exchange import COLLECTIVES
from tf_wu_shard.emulation.local_ops import LOCAL_OPS
from tf_wu_shard.errors import EmulationError
from tf_wu_shard.graph.calls import BRANCHES, LOOPS, PLAIN_CALLS, all_named_by, named_by

_BOOL, _INT32, _STRING = (attributes.dtype(number) for number in (10, 3, 7))

# The attribute of a function that XLA compiles as one program (`jit_compile=True`).
COMPILED = "_XlaMustCompile"

_FunctionDef = type(tf.compat.v1.GraphDef().library.function.add())


class _Form(NamedTuple):
    """How an op calls functions.

    Attributes:
        arguments: The attribute with the types of its arguments.
        results: The attribute with the types of its results.
        chooser: Its first input decides what runs, and is no argument.
        condition: The attribute of a function whose result decides what runs.
    """

    arguments: str = "Tin"
    results: str = "Tout"
    chooser: bool = False
    condition: str = ""


_CALL = _Form()
_BRANCH = _Form(chooser=True)
_LOOP = _Form(arguments="T", results="T", condition="cond")

_FORMS = {
    **dict.fromkeys(PLAIN_CALLS, _CALL),
    **dict.fromkeys(BRANCHES, _BRANCH),
    **dict.fromkeys(LOOPS, _LOOP),
}


Find = Callable[[str], Any | None]
Emit = Callable[[Clones, Iterable[Any], "Calls"], None]


class Calls:
    """The functions of one TPU program.

    Attributes:
        added: FunctionDefs that the emulated program calls and the program did not.
    """

    def __init__(self, devices: Sequence[str], find: Find, emit: Emit, suffix: str) -> None:
        """Looks at nothing yet.

        Args:
            devices: Where each replica runs.
            find: The FunctionDef of a name, or None where there is none.
            emit: Adds copies of nodes to a `Clones`.
            suffix: What distinguishes the names of added functions from those of other programs.
        """
        self.added: list[Any] = []
        self._replicas = replicas_on(devices)
        self._find = find
        self._emit = emit
        self._suffix = suffix
        self._exchanging: dict[str, bool] = {}
        self._personal: dict[str, bool] = {}
        self._made: dict[tuple[str, str], str] = {}

    def exchanges(self, node: Any) -> bool:
        """Whether replicas exchange data inside of what a node calls."""
        return any(map(self._exchanges, all_named_by(node)))

    def is_direct(self, node: Any) -> bool:
        """Whether a node's type is the name of a function (tf.nn.ctc_loss): a call without an op.

        Raises:
            EmulationError: The function does something else in each replica, or something together.
        """
        if self._find(node.op) is None:
            return False
        if self._is_personal(node.op) or self._exchanges(node.op):
            raise EmulationError(
                f"{node.name!r} cannot be emulated: it calls {node.op!r} by its name, which draws"
                " random numbers, names a device or exchanges data between replicas; call it as a"
                " tf.function"
            )
        return True

    def _exchanges(self, name: str) -> bool:
        if name not in self._exchanging:
            self._exchanging[name] = any(
                node.op in COLLECTIVES or self.exchanges(node) for node in self._nodes(name)
            )
        return self._exchanging[name]

    def _is_personal(self, name: str) -> bool:
        """Whether a function computes something else in each replica, or names a device."""
        if name not in self._personal:
            self._personal[name] = any(
                node.device
                or node.op in LOCAL_OPS
                or is_seeded(node)
                or any(map(self._is_personal, all_named_by(node)))
                for node in self._nodes(name)
            )
        return self._personal[name]

    def _nodes(self, name: str) -> Sequence[Any]:
        nodes: Sequence[Any] = self._definition(name).node_def
        return nodes

    def _definition(self, name: str) -> Any:
        definition = self._find(name)
        if definition is None:
            raise EmulationError(f"cannot emulate: the function {name!r} is called and not known")
        return definition

    def call_for_each(self, clones: Clones, node: Any) -> None:
        """Copies a node that calls functions in which nothing is exchanged."""
        changes: list[dict[str, Any]] = [{} for _ in clones.replicas]
        for key, names in named_by(node):
            for name in names:
                self._check(name)
            for replica, change in zip(clones.replicas, changes, strict=True):
                own = [self._own(name, replica) for name in names]
                is_list = node.attr[key].HasField("list")
                change[key] = attributes.functions(own) if is_list else attributes.function(own[0])
        clones.copy(node, changes)

    def _own(self, name: str, replica: Replica) -> str:
        """The function that a replica calls in the place of `name`."""
        if not self._is_personal(name):
            return name
        key = (name, str(replica.number))
        if key not in self._made:
            alone = Replica(replica.number, "", "")
            made = self._made[key] = f"{name}_replica_{replica.number}_{self._suffix}"
            self._add(name, made, (alone,), "")
        return self._made[key]

    def _check(self, name: str) -> None:
        """Copies a function for nobody, which complains about what cannot be copied."""
        if (name, "checked") not in self._made:
            self._made[name, "checked"] = name
            nodes = self._nodes(name)
            program = {node.name: node for node in nodes}
            self._emit(Clones(program, (), lambda _: (), program), nodes, self)

    def _joint(self, name: str, condition: bool = False) -> str:
        """The function of all replicas' arguments and results that takes the place of `name`.

        Args:
            name: The function's name.
            condition: Return one result, the first replica's, and assert that all agree.
        """
        key = (name, "condition" if condition else "joint")
        if key not in self._made:
            made = self._made[key] = f"{name}_all_replicas_{self._suffix}_{key[1]}"
            self._add(name, made, self._replicas, "replica_{}_", condition)
        return self._made[key]

    def _add(
        self, name: str, made: str, replicas: Sequence[Replica], tag: str, condition: bool = False
    ) -> None:
        """Makes the FunctionDef `made` out of the function `name`, for some replicas at once.

        Args:
            name: What it is made of.
            made: What it is called.
            replicas: Whom it is for.
            tag: What its arguments and results begin with, the replica's number in braces.
            condition: See `_joint`.
        """
        old = self._definition(name)
        new = _FunctionDef()
        new.signature.CopyFrom(old.signature)
        new.signature.name = made
        _copy_attributes(old, new, keep_compiled=len(replicas) == 1)
        tags = [tag.format(replica.number) for replica in replicas]
        _repeat(new.signature.input_arg, old.signature.input_arg, tags)
        _repeat(new.signature.output_arg, old.signature.output_arg, tags)
        count = len(old.signature.input_arg)
        for place in range(len(replicas)):
            for index, about in old.arg_attr.items():
                new.arg_attr[place * count + index].CopyFrom(about)
        arguments = {a.name: [t + a.name for t in tags] for a in old.signature.input_arg}
        program = {node.name: node for node in old.node_def}
        clones = Clones(program, replicas, arguments.__getitem__, program)
        self._emit(clones, old.node_def, self)
        results = {out.name: clones.values(old.ret[out.name]) for out in old.signature.output_arg}
        if condition:
            del new.signature.output_arg[:]
            new.signature.output_arg.add().CopyFrom(old.signature.output_arg[0])
            (decision,) = results
            chosen = agreed(clones, f"the condition {name!r}", results[decision], _BOOL)
            new.ret[decision] = chosen
        else:
            for name_of, values in results.items():
                for prefix, value in zip(tags, values, strict=True):
                    new.ret[prefix + name_of] = value
        _return_controls(old, new, clones)
        new.node_def.extend(clones.nodes)
        self.added.append(new)

    def declare_joint(self, clones: Clones, node: Any) -> None:
        """Says what stands for the results of a call in which replicas exchange data.

        Raises:
            EmulationError: Nothing is known about how such an op calls functions.
        """
        form = _FORMS.get(node.op)
        if form is None:
            raise EmulationError(
                f"{node.op} {node.name!r} cannot be emulated: replicas exchange data in a function"
                " that it calls"
            )
        name = SHARED_SCOPE + node.name
        count = len(node.attr[form.results].list.type)
        for index in range(count):
            clones.stand_for(
                f"{node.name}:output:{index}",
                [f"{name}:output:{r * count + index}" for r in range(len(clones.replicas))],
            )
        clones.stand_for_op(node.name, [name] * len(clones.replicas))

    def call_joint(self, clones: Clones, node: Any) -> None:
        """Adds the one call that takes the place of all replicas' calls."""
        form = _FORMS[node.op]
        rows = clones.inputs(node)
        data = [[text for text in row if text[0] != "^"] for row in rows]
        controls = [text[1:] for row in rows for text in row if text[0] == "^"]
        inputs = [text for row in data for text in row[form.chooser :]]
        if form.chooser:
            dtype = node.attr.get("Tcond", _INT32)
            what = f"{node.op} {node.name!r}"
            inputs.insert(0, agreed(clones, what, [row[0] for row in data], dtype))
        attrs = {k: v for k, v in node.attr.items() if k[0] != "_"}
        for key, names in named_by(node):
            joint = [self._joint(name, key == form.condition) for name in names]
            is_list = node.attr[key].HasField("list")
            attrs[key] = attributes.functions(joint) if is_list else attributes.function(joint[0])
        for key in {form.arguments, form.results, "output_shapes"} & set(attrs):
            attrs[key] = attributes.repeated(attrs[key], len(rows))
        if form is not _CALL:
            # As kernels of their own, branches and loops run on one device.
            attrs["_lower_using_switch_merge"] = attributes.flag(True)
        device = clones.replicas[0].device
        name = SHARED_SCOPE + node.name
        clones.add(node.op, name, inputs, device, controls=controls, attrs=attrs)


def agreed(clones: Clones, what: str, decisions: Sequence[str], dtype: Any) -> str:
    """The first of all replicas' decisions, once they are known to be the same.

    Args:
        clones: The copies, for all replicas.
        what: Who decides, for the message.
        decisions: A scalar of each replica.
        dtype: Their element type, an AttrValue.

    Returns:
        The tensor that holds the decision.
    """
    scope = f"{SHARED_SCOPE}agreement_{len(clones.nodes)}"
    device = clones.replicas[0].device
    message = np.array(
        f"the replicas disagree about {what}, inside of which they exchange data; on a TPU they"
        " would wait for each other forever"
    )

    def add(op_type: str, name: str, inputs: Sequence[str], **attrs: Any) -> str:
        clones.add(op_type, f"{scope}/{name}", inputs, device, attrs=attrs)
        return f"{scope}/{name}"

    same = [
        f"{add('Equal', f'same_{i}', (decision, decisions[0]), T=dtype)}:z:0"
        for i, decision in enumerate(decisions)
    ]
    count = attributes.integer(len(same))
    packed = add("Pack", "packed", same, N=count, T=_BOOL, axis=attributes.integer(0))
    axis = add("Const", "axis", (), dtype=_INT32, value=attributes.tensor(np.array([0], np.int32)))
    every = add("All", "every", (f"{packed}:output:0", f"{axis}:output:0"), Tidx=_INT32)
    text = add("Const", "message", (), dtype=_STRING, value=attributes.tensor(message))
    types = attributes.dtypes([_STRING.type])
    inputs = (f"{every}:output:0", f"{text}:output:0")
    check = add("Assert", "assert", inputs, T=types, summarize=attributes.integer(1))
    name = f"{scope}/decision"
    clones.add("Identity", name, [decisions[0]], device, controls=[check], attrs={"T": dtype})
    return f"{name}:output:0"


def _copy_attributes(old: Any, new: Any, keep_compiled: bool) -> None:
    for key, value in old.attr.items():
        # Differentiated copies of the old function are not the new one's; and what spans several
        # devices is not compiled as one program.
        if key in ("forward_function_name", "backward_function_name"):
            continue
        if key == COMPILED and not keep_compiled:
            continue
        new.attr[key].CopyFrom(value)


def _repeat(new: Any, old: Iterable[Any], tags: Sequence[str]) -> None:
    """Arguments or results, all of one replica before those of the next."""
    once = list(old)
    del new[:]
    for tag in tags:
        for arg in once:
            added = new.add()
            added.CopyFrom(arg)
            added.name = tag + arg.name


def _return_controls(old: Any, new: Any, clones: Clones) -> None:
    """Makes the ops that the old function had to run run for every replica."""
    del new.signature.control_output[:]
    for key, op in old.control_ret.items():
        for place, name in enumerate(clones.waits(op)):
            new.control_ret[f"{key}_{place}"] = name
            new.signature.control_output.append(f"{key}_{place}")


def is_seeded(node: Any) -> bool:
    """Whether a node draws random numbers from a seed of its own."""
    attr = node.attr
    return "seed2" in attr and bool(attr["seed"].i or attr["seed2"].i)
