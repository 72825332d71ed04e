"""Replicas of one process read each other's tensors where they lie, and sum in their order."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from tf_wu_shard.dtypes import FLOAT32
from tf_wu_shard.graph.builder import KEEP_ORDER, GraphBuilder
from tf_wu_shard.graph.op import Value
from tf_wu_shard.grounds.in_process.collectives import InProcess
from tf_wu_shard.layout import Layout, flat_layout
from tf_wu_shard.placement import Combine
from tf_wu_shard.replicas import in_this_process


class Made:
    """The dialect of some replicas, and the nodes that it makes."""

    def __init__(self, replicas: int) -> None:
        self.devices = [f"d{number}" for number in range(replicas)]
        self.dialect = InProcess(in_this_process(self.devices))
        self.builder = GraphBuilder((), lambda value: FLOAT32)
        self.at = self.builder.at("", "verb")

    def of(self, op_type: str) -> list[Any]:
        """The nodes of a type, in the order in which they were made."""
        return [node for node in self.builder.nodes if node.op == op_type]

    def named(self, value: Value | str) -> Any:
        name = str(value).partition(":")[0]
        return next(node for node in self.builder.nodes if node.name == name)

    def constant(self, name: str) -> list[int]:
        found: list[int] = tf.make_ndarray(self.named(name).attr["value"].tensor).tolist()
        return found


def operands(replicas: int, tensors: int = 1) -> list[list[Value]]:
    return [[Value(f"t{t}_{r}") for r in range(replicas)] for t in range(tensors)]


def test_a_run_is_cut_where_it_lies_and_summed_where_it_is_owned() -> None:
    made = Made(2)
    ((first, second),) = made.dialect.reduce_scatter(
        made.at, operands(2), [flat_layout((5, 29), 2, 4)]
    )
    for device, total, (start, size) in (("d0", first, (0, 80)), ("d1", second, (80, 65))):
        addition = made.named(total)
        assert (addition.op, addition.device) == ("AddV2", device)
        assert addition.attr[KEEP_ORDER].b
        cuts = [made.named(name) for name in addition.input]
        # Replica 0's part is the first term.
        assert [cut.device for cut in cuts] == ["d0", "d1"]
        for cut in cuts:
            bounds = [made.constant(name) for name in cut.input[1:]]
            assert bounds == [[start], [size]]


@pytest.mark.parametrize(
    ("replicas", "shape", "splits", "slices"),
    [(4, (4, 48), 4, 0), (4, (5, 29), 0, 16), (2, (4, 48), 0, 4)],
)
def test_whole_lanes_are_split_once_for_each_of_many_replicas_and_all_else_is_sliced(
    replicas: int, shape: tuple[int, ...], splits: int, slices: int
) -> None:
    made, layout = Made(replicas), flat_layout(shape, replicas, 4)
    ((*shards,),) = made.dialect.reduce_scatter(made.at, operands(replicas), [layout])
    assert (len(made.of("SplitV")), len(made.of("Slice"))) == (splits, slices)
    assert [made.named(shard).device for shard in shards] == made.devices
    # Three additions make a shard of four terms.
    additions = [node.device for node in made.of("AddV2")]
    assert additions == [d for d in made.devices for _ in range(replicas - 1)]


def test_several_tensors_travel_in_one_pack_in_which_each_owners_part_is_one_run() -> None:
    made = Made(2)
    layouts = [flat_layout((40,), 2, 4), flat_layout((17,), 2, 4)]
    shards = made.dialect.reduce_scatter(made.at, operands(2, 2), layouts)
    assert [node.device for node in made.of("ConcatV2")] == ["d0", "d1"]
    for pack in made.of("ConcatV2"):
        one, other, one_rest, other_rest, _ = pack.input
        assert (f"{one}:1", f"{other}:1") == (one_rest, other_rest)
    runs = [[made.constant(name) for name in cut.input[1:]] for cut in made.of("Slice")]
    # Of 40 elements the first owner has 32, of 17 it has 16.
    assert runs == [[[0], [48]]] * 2 + [[[48], [9]]] * 2
    sizes = [made.constant(made.named(shards[0][r]).input[1]) for r in range(2)]
    assert sizes == [[32, 16], [8, 1]]
    assert [[shard.index for shard in own] for own in shards] == [[0, 0], [1, 1]]


def test_one_tensor_put_together_of_what_is_not_empty_serves_all_replicas() -> None:
    made = Made(3)
    shards = [[Value(f"s{r}") for r in range(3)]]
    ((*whole,),) = made.dialect.all_gather(made.at, shards, [Layout((2, 16), 3, 16)])
    assert len(set(whole)) == 1 and len(whole) == 3
    shaped = made.named(whole[0])
    assert made.constant(shaped.input[1]) == [2, 16]
    assert [*made.named(shaped.input[0]).input[:-1]] == ["s0", "s1"]


@pytest.mark.parametrize(("combine", "by"), [(Combine.SUM, "AddV2"), (Combine.MIN, "Min")])
def test_what_is_reduced_for_all_is_packed_by_each_and_combined_once_on_the_first(
    combine: Combine, by: str
) -> None:
    made = Made(2)
    found = made.dialect.all_reduce(made.at, operands(2, 2), [(3, 5), ()], combine)
    assert [node.device for node in made.of("ConcatV2")] == ["d0", "d1"]
    (combined,) = made.of(by)
    assert combined.device == "d0"
    (unpacked,) = made.of("SplitV")
    assert unpacked.input[0] == combined.name and made.constant(unpacked.input[1]) == [15, 1]
    assert [len(set(own)) for own in found] == [1, 1]
    shapes = [made.constant(made.named(own[0]).input[1]) for own in found]
    assert shapes == [[3, 5], []]
