"""What a variable holds at an op is what it was assigned last, and how often it changed since."""

from __future__ import annotations

import pytest

from tests.graph.text_graph import view_of
from tf_wu_shard.graph.op import Value
from tf_wu_shard.step.held_values import HeldValues

X, W = Value("x"), Value("w0")
ASSIGNED = "put = AssignVariableOp(w0, x)\n"
ADDED = "add = AssignAddVariableOp(w0, y) ^put\n"


@pytest.mark.parametrize(
    ("writes", "held"),
    [
        ("", (W, 0)),
        (ASSIGNED, (X, 0)),
        (ASSIGNED + ADDED, (X, 1)),
        (ADDED.replace(" ^put", ""), (W, 1)),
        # What it was assigned is none of the values in question.
        (ASSIGNED.replace("x", "y"), (W, 1)),
        (ASSIGNED + ADDED + "last = AssignVariableOp(w0, y) ^add\n", (W, 3)),
        ("part = ResourceStridedSliceAssign(w0, y, y, y, x)\n", (W, 1)),
    ],
)
def test_what_a_read_takes_is_what_was_written_before(writes: str, held: tuple[Value, int]) -> None:
    names = [line.split(" ")[0] for line in writes.splitlines()]
    text = f"x = Placeholder() [4]\ny = Placeholder() [4]\n{writes}"
    text += "read = ReadVariableOp(w0) [4]" + "".join(f" ^{name}" for name in names)
    text += "\nafter = AssignVariableOp(w0, x) ^read\nsum = Add(read, x) [4]\n"
    view = view_of(text, replicas=1, variables={"w": (4,)})
    values = HeldValues(view, view.variables.keys())
    assert values.at(view.ops["read"], W, {X, W}) == held
    # What is no handle is itself, whoever takes it.
    assert values.at(view.ops["sum"], X, {X, W}) == (X, 0)


def test_what_nobody_says_is_a_handle_is_taken_for_a_value() -> None:
    view = view_of(
        f"x = Placeholder() [4]\n{ASSIGNED}read = ReadVariableOp(w0) [4] ^put\n",
        replicas=1,
        variables={"w": (4,)},
    )
    assert HeldValues(view, set()).at(view.ops["read"], W, {X}) == (W, 0)
