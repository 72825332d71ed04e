"""What the object graph of a SavedModel says: variables, slots, what functions are bound to.

Its nodes name each other by number; numbers that name nothing are noted and left out. Which weight
a slot belongs to is known in two ways: by slot references (optimizers of Keras 2 and before), and
by the lists that an optimizer of Keras 3 keeps beside its list of weights.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from tf_wu_shard.model_files.index_table import IndexEntry
from tf_wu_shard.model_files.shapes import shape_of
from tf_wu_shard.model_files.types import BoundFunction, ModelVariable, SlotRelation
from tf_wu_shard.unique_names import UniqueNames

# A tensor of a checkpoint is called by the way to its object, what is kept of it, and which kind
# of thing that is (saveable_compat.py, graph_view.py).
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_SLOT = "/.OPTIMIZER_SLOT/"

# The VariableSynchronization (variable.proto) of a variable that each replica writes on its own.
_ON_READ = 3

# The list of weights of an optimizer of Keras 3, and the one of everything that it keeps.
_WEIGHTS, _ALL = "_trainable_variables", "_variables"

# What an export of Keras 3 (`model.export`) holds at its root: the variables that its functions
# take, and each of them once more.
_EXPORTED, _AGAIN = "variables", "_all_variables"


class ObjectGraph:
    """The variables and functions of a SavedModel.

    Attributes:
        variables: The variables by key.
        notes: What contradicts itself.
    """

    def __init__(self, proto: Any) -> None:
        """Reads an object graph.

        Args:
            proto: The SavedObjectGraph.
        """
        self._proto = proto
        self._nodes = list(proto.nodes)
        self.variables: dict[str, ModelVariable] = {}
        self.notes: list[str] = []
        self._keys: dict[int, str] = {}
        # What is asked for again and again, by the number of the object.
        self._named: dict[int, dict[str, int]] = {}
        self._lists: dict[int, tuple[str, ...]] = {}
        self._taken: set[int] = set()
        self._references: dict[int, dict[tuple[int, str], int]] = {}
        unique = UniqueNames()
        for number, name in self._names().items():
            self._add_variable(number, unique.take(name))
        self._leave_out_copies()
        for node in self._nodes:
            for key in self._kept_beside_weights(node):
                self.variables[key] = dataclasses.replace(self.variables[key], trainable=False)

    def _names(self) -> dict[int, str]:
        """What the variables are called, by the numbers of their nodes.

        Keras calls the weights of a model that it builds with the first batch by the last word of
        their paths, "model/kernel" all of them: those go by the way to them, if it ends in that
        word.
        """
        found = {
            number: node.variable.name.partition(":")[0] or f"variable_{number}"
            for number, node in enumerate(self._nodes)
            if node.WhichOneof("kind") == "variable"
        }
        counted = collections.Counter(found.values())
        shared = {number: name for number, name in found.items() if counted[name] > 1}
        return found | (self._ways_to(shared) if shared else {})

    def _ways_to(self, variables: Mapping[int, str]) -> dict[int, str]:
        """The shortest ways to variables that end in the last words of their names, by number."""
        found: dict[int, str] = {}
        seen, waiting = {0}, collections.deque([(0, "")])
        while waiting:
            number, before = waiting.popleft()
            for name, child in self._children(number).items():
                word = name.removeprefix("_")
                way = f"{before}/{word}" if before else word
                if child in variables:
                    if word == variables[child].rpartition("/")[2]:
                        found.setdefault(child, way)
                elif child not in seen and 0 <= child < len(self._nodes):
                    seen.add(child)
                    waiting.append((child, way))
        return found

    def _add_variable(self, number: int, key: str) -> None:
        variable = self._nodes[number].variable
        self._keys[number] = key
        self.variables[key] = ModelVariable(
            key,
            shape_of(variable.shape),
            variable.dtype,
            variable.trainable,
            tuple(c.device for c in variable.experimental_distributed_variable_components),
            variable.synchronization != _ON_READ,
        )

    def _leave_out_copies(self) -> None:
        """Takes out what an export of Keras 3 holds once more, and no function takes."""
        lists = self._children(0)
        if _AGAIN not in lists:
            return
        taken = {n for f in self._proto.concrete_functions.values() for n in f.bound_inputs}
        exported = {*self._children(lists.get(_EXPORTED, -1)).values()} & self._keys.keys()
        count = collections.Counter(map(self._described, exported))
        again = {*self._children(lists[_AGAIN]).values()} & self._keys.keys()
        for number in sorted(again - exported - taken):
            if count[self._described(number)]:
                count[self._described(number)] -= 1
                del self.variables[self._keys.pop(number)]

    def _described(self, number: int) -> tuple[Any, ...]:
        """What a variable and a copy of it have in common, given the number of its node."""
        variable = self._nodes[number].variable
        return variable.name, shape_of(variable.shape), variable.dtype

    def _kept_beside_weights(self, node: Any) -> set[str]:
        """What an optimizer of Keras 3 keeps of its own; some of it is marked as trained."""
        lists = {c.local_name: c.node_id for c in node.children}
        if _WEIGHTS not in lists or _ALL not in lists:
            return set()
        own = {self._keys.get(number, "") for number in lists.values()}
        return own.union(self._numbered(lists[_ALL])) - {*self._numbered(lists[_WEIGHTS]), ""}

    def bound_functions(self) -> tuple[BoundFunction, ...]:
        """The functions of the model, and what their last arguments are, in the order of names."""
        return tuple(
            BoundFunction(name, tuple(self._keys.get(n, "") for n in function.bound_inputs))
            for name, function in sorted(self._proto.concrete_functions.items())
        )

    def slots(self) -> tuple[SlotRelation, ...]:
        """Which variables optimizers keep for which."""
        self._taken.clear()
        found = dict.fromkeys(
            relation
            for node in self._nodes
            for relation in (*self._referenced(node), *self._listed(node))
        )
        return tuple(found)

    def _referenced(self, node: Any) -> Iterator[SlotRelation]:
        for slot in node.slot_variables:
            weight = self._keys.get(slot.original_variable_node_id)
            own = self._keys.get(slot.slot_variable_node_id)
            if weight is None or own is None:
                self._note("the object graph has a slot of something that is no variable")
            else:
                yield SlotRelation(weight, slot.slot_name, own)

    def _listed(self, node: Any) -> Iterator[SlotRelation]:
        lists = {c.local_name: c.node_id for c in node.children}
        weights = self._numbered(lists.pop(_WEIGHTS, -1))
        lists.pop(_ALL, None)
        for name, number in lists.items() if weights else ():
            members = self._numbered(number)
            # A list belongs to one optimizer, so that this takes no more than there are members.
            if len(members) != len(weights) or number in self._taken:
                continue
            self._taken.add(number)
            for weight, slot in zip(weights, members, strict=True):
                if weight != slot and weight and slot:
                    yield SlotRelation(weight, name.lstrip("_"), slot)

    def _numbered(self, number: int) -> tuple[str, ...]:
        """The variables that a list holds, "" for anything else; () for what is no list."""
        if number not in self._lists:
            children = self._children(number)
            members = [children.get(str(i), -1) for i in range(len(children))]
            whole = -1 not in members
            self._lists[number] = tuple(self._keys.get(n, "") for n in members) if whole else ()
        return self._lists[number]

    def _children(self, number: int) -> dict[str, int]:
        if not 0 <= number < len(self._nodes):
            return {}
        if number not in self._named:
            children = self._nodes[number].children
            self._named[number] = {child.local_name: child.node_id for child in children}
        return self._named[number]

    def compare(self, index: Mapping[str, IndexEntry]) -> None:
        """Notes where the index of the variables' values says something else.

        Args:
            index: What it says, as `index_entries` gives it.
        """
        for name, entry in index.items():
            if not name.endswith(_VALUE):
                continue
            key = self._keys.get(self._followed(name.removesuffix(_VALUE)))
            variable = self.variables.get(key or "")
            if variable is None or variable.shape is None or variable.dtype == 0:
                continue
            if (entry.shape, entry.dtype) != (variable.shape, variable.dtype):
                self._note(f"the variables' index says other things of {key}")

    def _followed(self, path: str) -> int:
        """The number of the object that a path from the root leads to, or -1."""
        path, _, slot = path.partition(_SLOT)
        number = self._walked(path)
        if not slot:
            return number
        optimizer, _, name = slot.rpartition("/")
        return self._slots_of(self._walked(optimizer)).get((number, name), -1)

    def _slots_of(self, number: int) -> dict[tuple[int, str], int]:
        """The slots that an object refers to, each by its weight and its name."""
        if number not in self._references:
            slots = self._nodes[number].slot_variables if number >= 0 else ()
            self._references[number] = {
                (s.original_variable_node_id, s.slot_name): s.slot_variable_node_id for s in slots
            }
        return self._references[number]

    def _walked(self, path: str) -> int:
        number = 0
        for part in path.split("/"):
            number = self._children(number).get(part.replace(".S", "/").replace("..", "."), -1)
            if not 0 <= number < len(self._nodes):
                return -1
        return number

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)
