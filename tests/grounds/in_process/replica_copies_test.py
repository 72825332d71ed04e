"""A graph with a copy for each replica: each on its device, edges between them, sums in order."""

from __future__ import annotations

import tensorflow as tf

from tests.graph.text_graph import view_of
from tf_wu_shard.dtypes import FLOAT32, RESOURCE
from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.op import Value
from tf_wu_shard.grounds.in_process.replica_copies import CopyOfEachReplica
from tf_wu_shard.layout import flat_layout
from tf_wu_shard.replicas import in_this_process

DEVICES = ("d0", "d1", "d2")

MADE = CopyOfEachReplica(in_this_process(DEVICES))

SUM = """
size = Const() {value=3}
key = Const() {value=1}
g# = Mul() [4] @d#
sum# = CollectiveReduceV2(g#, size, key) {merge_op=Add final_op=Id} [4] @d#
"""


def builder() -> GraphBuilder:
    return GraphBuilder((), lambda value: FLOAT32)


def test_the_owner_of_an_update_adds_up_all_replicas_parts_in_their_order() -> None:
    own = builder()
    total = MADE.reduce_to(own.at("", "sum"), [Value("a"), Value("b"), Value("c")], owner=1)
    nodes = {node.name: node for node in own.nodes}
    last = nodes[total.op]
    first = nodes[last.input[0]]
    assert [(node.op, node.device) for node in (first, last)] == [("AddV2", "d1")] * 2
    terms = [nodes[name] for name in (*first.input, last.input[1])]
    assert [(term.input[0], term.device) for term in terms] == [
        ("a", "d0"),
        ("b", "d1"),
        ("c", "d2"),
    ]


def test_a_replica_cuts_its_own_shard_on_its_device() -> None:
    own = builder()
    layout = flat_layout((5, 10), 3, 4)
    shard = MADE.slice_own(own.at("elsewhere", "own"), Value("w"), layout, 2)
    nodes = {node.name: node for node in own.nodes}
    cut = nodes[shard.op]
    assert (cut.op, cut.device) == ("Slice", "d2")
    bounds = [tf.make_ndarray(nodes[name].attr["value"].tensor).tolist() for name in cut.input[1:]]
    # Three runs of 32 elements at most hold 50.
    assert bounds == [[50], [0]]
    assert MADE.shard_of(2) == 2


def test_what_one_replica_has_all_read_where_it_lies() -> None:
    own = builder()
    assert MADE.broadcast_from(own.at("d1", "told"), Value("w")) == [Value("w")] * 3
    assert own.nodes == []


def test_one_list_of_all_replicas_entries_is_made_on_the_first_device() -> None:
    own = builder()
    parts = {"rows": [Value(f"r{r}") for r in range(3)], "values": [Value(f"v{r}") for r in "abc"]}
    found = MADE.gather_entries(own.at("", "lists"), parts)
    joined = {node.name: node for node in own.nodes if node.op == "ConcatV2"}
    assert found == {
        "rows": [Value("lists/rows")] * 3,
        "values": [Value("lists/values")] * 3,
    }
    assert {node.device for node in joined.values()} == {"d0"}
    assert [*joined["lists/values"].input[:-1]] == ["va", "vb", "vc"]


def test_the_sums_of_its_own_replicas_are_recognised_and_those_of_others_refused() -> None:
    view = view_of(SUM, replicas=3)
    (found,), refused = MADE.recognise(view)
    assert found.carriers == ("sum0", "sum1", "sum2") and refused == []
    two = CopyOfEachReplica(in_this_process(DEVICES[:2]))
    found_of_two, refused = two.recognise(view)
    assert found_of_two == [] and refused


def test_a_shard_enters_by_one_handle_and_any_replica_may_own_an_update() -> None:
    own = builder()
    packed, handle = MADE.shard_handle(own.at("d1", "m"))
    assert packed == handle == Value("m")
    (node,) = own.nodes
    assert (node.op, node.device, own.dtype(handle)) == ("Placeholder", "d1", RESOURCE)
    assert MADE.uneven is MADE and MADE.entries is MADE and MADE.stacks is None
