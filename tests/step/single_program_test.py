"""What keeps the update of a TPU program whole: anything that a replica has of its own."""

from __future__ import annotations

import pytest

from tests.graph.text_graph import view_of
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import VariableRef
from tf_wu_shard.step.single_program import SingleProgram

REPLICAS = 4

# What a program of four replicas may be made of; `own` differs between them, the rest does not.
PROGRAM = """
everyone = Const() {value=1x4}
halves = Const() {value=2x2}
rate = Const() {value=1}
a = Placeholder() [4]
b = Placeholder() [4]
own = TPUReplicatedInput(a, b, a, b) [4]
shared = TPUReplicatedInput(a) [4]
repeated = TPUReplicatedInput(a, a, a, a) [4]
sum = CrossReplicaSum(own, everyone) [4]
total = XlaAllReduce(own, everyone) [4]
part = CrossReplicaSum(own, halves) [4]
number = XlaReplicaId() []
moved = CollectivePermute(shared, everyone) [4]
swapped = AllToAll(shared, everyone) [4]
scattered = XlaReduceScatter(shared, everyone, rate) [1]
drawn = RandomUniform(rate) [4]
outside = Square(shared) {_xla_outside_compilation=0} [4]
weight = ReadVariableOp(w) [4]
count = ReadVariableOp(local) [4]
"""

REFS = {
    "w": VariableRef("w", 0, REPLICAS, (4,), 1, True, "", True),
    "local": VariableRef("local", 0, REPLICAS, (4,), 1, False, ""),
}


def refusal(operand: str, known: tuple[str, ...] = ()) -> str | None:
    """Why a write computed from `operand` is refused, `known` being sums that are matched."""
    text = PROGRAM + f"step = Mul({operand}, rate) [4]\nput = AssignSubVariableOp(w, step)\n"
    results = {Value(name): (key, 0) for key, name in enumerate(known)}
    found = SingleProgram(view_of(text, refs=REFS), results, REPLICAS).match(0, "put", "put")
    return None if found is None else str(found)


@pytest.mark.parametrize("operand", ["sum", "total", "rate", "shared", "repeated", "weight"])
def test_what_is_the_same_on_every_replica_passes(operand: str) -> None:
    assert refusal(operand) is None


@pytest.mark.parametrize(
    ("operand", "reason"),
    [
        ("own", "each replica computes it from an input of its own (own)"),
        ("number", "the result of XlaReplicaId differs between replicas (number)"),
        ("moved", "the result of CollectivePermute differs between replicas (moved)"),
        ("swapped", "the result of AllToAll differs between replicas (swapped)"),
        ("scattered", "the result of XlaReduceScatter differs between replicas (scattered)"),
        ("part", "it sums over some of the replicas only (part)"),
        ("count", "each replica keeps its own value of local (local)"),
        ("drawn", "each replica runs a RandomUniform of its own (drawn)"),
        ("outside", "it runs outside of the TPU program (outside compilation) (outside)"),
    ],
)
def test_what_a_replica_has_of_its_own_is_refused(operand: str, reason: str) -> None:
    assert refusal(operand) == reason


def test_what_enters_a_sum_over_all_replicas_may_differ() -> None:
    assert refusal("own") is not None
    assert refusal("sum") is None


def test_nothing_is_asked_of_what_enters_a_matched_gradient() -> None:
    assert refusal("part", known=("part",)) is None


def test_one_operand_of_several_that_differs_is_found() -> None:
    text = PROGRAM + "deep = AddN(sum, weight, number) [4]\n"
    text += "step = Mul(deep, rate) [4]\nput = AssignSubVariableOp(w, step)\n"
    found = SingleProgram(view_of(text, refs=REFS), {}, REPLICAS).match(0, "put", "put")
    assert found is not None
    assert found.where == "number"


def test_what_a_refusal_followed_halfway_is_refused_again() -> None:
    text = PROGRAM + (
        "mixed = Square(own) [4]\n"
        "put = AssignSubVariableOp(w, mixed)\n"
        "again = AssignAddVariableOp(w, mixed) ^put\n"
    )
    program = SingleProgram(view_of(text, refs=REFS), {}, REPLICAS)
    assert program.match(0, "put", "put") is not None
    assert program.match(0, "again", "again") is not None


def test_an_identity_hands_through_only_what_it_is_asked_for() -> None:
    text = PROGRAM + "both = IdentityN(sum, own) [4] [4]\n"
    for operand, same in (("both:0", True), ("both:1", False)):
        more = f"step = Mul({operand}, rate) [4]\nput = AssignSubVariableOp(w, step)\n"
        found = SingleProgram(view_of(text + more, refs=REFS), {}, REPLICAS)
        assert (found.match(0, "put", "put") is None) == same
