"""Which plain function takes the place of one with TPU clusters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.emulation import definitions
from tests.emulation.definitions import FLOAT, entry, function, metadata, node, text
from tf_wu_shard.emulation import EmulationError, attributes

GROUPS = node(
    "groups",
    "Const",
    "^meta",
    cluster="c",
    value=attributes.tensor(np.array([[0, 1]], np.int32)),
    dtype=attributes.dtype(3),
)


def double(*between: Any, **changes: Any) -> Any:
    """Two replicas that double what each is given; `between` are more nodes of the cluster."""
    parts = {
        "nodes": [
            metadata("meta", cluster="c"),
            entry("own", "a", "b"),
            node("twice", "AddV2", "own:output:0", "own:output:0", "^meta", cluster="c", T=FLOAT),
            *between,
            node("out", "TPUReplicatedOutput", "twice:z:0", T=FLOAT),
        ],
        "arguments": ("a", "b"),
        "results": {"x": "out:outputs:0", "y": "out:outputs:1"},
    }
    return function("f", **(parts | changes))


def test_every_op_of_a_cluster_stands_once_for_each_replica() -> None:
    lowered = definitions.lowered(double())
    assert text(lowered.definition) == [
        "replica_0/twice = AddV2(a, a) @cpu0",
        "replica_1/twice = AddV2(b, b) @cpu1",
    ]
    assert dict(lowered.definition.ret) == {"x": "replica_0/twice:z:0", "y": "replica_1/twice:z:0"}
    assert lowered.definition.signature.name == "f"
    assert not lowered.added


def test_the_traced_definition_is_left_as_it_was() -> None:
    traced = double()
    before = traced.SerializeToString()
    definitions.lowered(traced)
    assert traced.SerializeToString() == before


def test_no_mark_of_a_cluster_and_no_colocation_is_left() -> None:
    marks = ("_tpu_replicate", "_class", "_xla_outside_compilation", "_tpu_output_identity")
    marked = node("marked", "Neg", "twice:z:0", cluster="c", T=FLOAT)
    for key in marks[1:]:
        marked.attr[key].s = b"x"
    nodes = definitions.lowered(double(marked)).definition.node_def
    assert len(nodes) == 4
    assert not any(mark in node.attr for node in nodes for mark in marks)


def test_a_packed_handle_becomes_each_replicas_own_on_its_device() -> None:
    lowered = definitions.lowered(
        function(
            "f",
            [
                metadata("meta", cluster="c"),
                entry("handle", "v", packed=True),
                node("read", "ReadVariableOp", "handle:output:0", "^meta", cluster="c"),
            ],
            arguments=("v",),
        )
    )
    assert text(lowered.definition) == [
        "replica_0/handle = Identity(v) @cpu0",
        "replica_0/read = ReadVariableOp(replica_0/handle:output:0) @cpu0",
        "replica_1/handle = Identity(v) @cpu1",
        "replica_1/read = ReadVariableOp(replica_1/handle:output:0) @cpu1",
    ]


def test_control_edges_stay_within_a_replica_and_join_all_of_them_outside() -> None:
    lowered = definitions.lowered(
        double(
            node("first", "NoOp", "^twice", cluster="c"),
            node("after", "NoOp", "^first"),
            controls={"first": "first", "after": "after"},
        )
    )
    assert text(lowered.definition)[:3] == [
        "after = NoOp(^replica_0/first, ^replica_1/first)",
        "replica_0/first = NoOp(^replica_0/twice) @cpu0",
        "replica_0/twice = AddV2(a, a) @cpu0",
    ]
    assert dict(lowered.definition.control_ret) == {
        "first_0": "replica_0/first",
        "first_1": "replica_1/first",
        "after_0": "after",
    }
    assert sorted(lowered.definition.signature.control_output) == ["after_0", "first_0", "first_1"]


def test_a_cluster_comes_after_what_its_pivot_waits_for() -> None:
    pivot = node("pivot", "NoOp", "^said", _pivot_for_cluster=attributes.flag(True))
    lowered = definitions.lowered(
        function(
            "f",
            [
                node("said", "PrintV2"),
                pivot,
                metadata("meta", "^pivot", cluster="c"),
                node("work", "NoOp", "^meta", cluster="c"),
            ],
        )
    )
    assert "replica_1/work = NoOp(^said) @cpu1" in text(lowered.definition)


@pytest.mark.parametrize("turned", [False, True])
def test_a_cluster_reads_from_another_and_waits_for_it(turned: bool) -> None:
    first = [
        metadata("m1", cluster="one"),
        node("write", "NoOp", "^m1", cluster="one"),
        node("give", "Neg", "a", cluster="one", T=FLOAT),
        node("out", "TPUReplicatedOutput", "give:y:0"),
    ]
    second = [
        metadata("m2", cluster="two"),
        entry("take", "out:outputs:0", "out:outputs:1"),
        node("read", "Exp", "take:output:0", "^write", cluster="two", T=FLOAT),
    ]
    nodes = [*second, *first] if turned else [*first, *second]
    lowered = definitions.lowered(function("f", nodes, arguments=("a",)))
    assert [line for line in text(lowered.definition) if "read" in line] == [
        "replica_0/read = Exp(replica_0/give:y:0, ^replica_0/write, ^replica_1/write) @cpu0",
        "replica_1/read = Exp(replica_1/give:y:0, ^replica_0/write, ^replica_1/write) @cpu1",
    ]


def test_two_clusters_may_call_the_same_function() -> None:
    inner = function("g", [node("id", "XlaReplicaId")], results={"r": "id:id:0"})
    calls = [
        node(f"call{c}", "PartitionedCall", f"^m{c}", cluster=c, f=attributes.function("g"))
        for c in "xy"
    ]
    nodes = [metadata("mx", cluster="x"), metadata("my", cluster="y"), *calls]
    lowered = definitions.lowered(function("f", nodes), inner)
    names = {added.signature.name for added in lowered.added}
    assert len(names) == len(lowered.added) == 4
    assert {node.attr["f"].func.name for node in lowered.definition.node_def} == names


def test_compiling_went_well() -> None:
    result = node("status", "TPUCompilationResult", "^meta")
    lowered = definitions.lowered(double(result))
    (made,) = [node for node in lowered.definition.node_def if node.name == "status"]
    assert made.op == "Const" and not made.input
    assert list(made.attr["value"].tensor.string_val) == [b""]


def test_a_function_over_several_devices_is_not_compiled_as_one_program() -> None:
    marks = {"_XlaMustCompile": attributes.flag(True), "_noinline": attributes.flag(True)}
    assert not definitions.lowered(double(**marks)).definition.attr


def test_replicas_draw_from_seeds_of_their_own() -> None:
    def drawing(seed: int) -> Any:
        seeds = {"seed": attributes.integer(seed), "seed2": attributes.integer(seed)}
        return node("draw", "RandomUniform", "twice:z:0", cluster="c", T=FLOAT, **seeds)

    def second_seeds(seed: int) -> set[int]:
        nodes = definitions.lowered(double(drawing(seed))).definition.node_def
        return {node.attr["seed2"].i for node in nodes if node.op == "RandomUniform"}

    assert len(second_seeds(7)) == 2
    # Without a seed each op draws from one of its own anyway.
    assert second_seeds(0) == {0}


def test_a_sum_goes_from_replica_to_replica() -> None:
    total = node("sum", "CrossReplicaSum", "twice:z:0", "groups:output:0", cluster="c", T=FLOAT)
    lines = text(definitions.lowered(double(GROUPS, total)).definition)
    assert lines[0] == (
        "all_replicas/sum/AddN_1 = AddN(replica_0/twice:z:0, replica_1/twice:z:0) @cpu1"
    )
    assert "replica_0/sum = Identity(all_replicas/sum/AddN_1:sum:0) @cpu0" in lines
    assert "replica_1/sum = Identity(all_replicas/sum/AddN_1:sum:0) @cpu1" in lines


def test_several_cores_a_replica_are_refused() -> None:
    with pytest.raises(EmulationError, match=r"'c' cannot be emulated: .* over 2 cores"):
        definitions.lowered(function("f", [metadata("meta", cluster="c", cores=2)]))


def test_a_cluster_without_a_size_is_refused() -> None:
    with pytest.raises(EmulationError, match="'c' has no TPUReplicateMetadata"):
        definitions.lowered(function("f", [node("work", "NoOp", cluster="c")]))


def test_an_op_that_reads_from_inside_of_a_cluster_is_refused() -> None:
    reader = node("reader", "Neg", "twice:z:0", T=FLOAT)
    with pytest.raises(EmulationError, match="Neg 'reader' cannot be emulated: it reads 'twice'"):
        definitions.lowered(double(reader))


def test_an_op_that_runs_only_on_a_tpu_is_named() -> None:
    infeed = node("feed", "InfeedDequeue", "^meta", cluster="c", dtype=FLOAT)
    with pytest.raises(EmulationError, match="InfeedDequeue 'feed' cannot be emulated"):
        definitions.lowered(double(infeed))


@pytest.mark.parametrize("exchanging", [False, True])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_an_op_that_runs_only_on_a_tpu_is_named_however_deep_it_is(
    depth: int, exchanging: bool
) -> None:
    body = [node("feed", "InfeedDequeue", dtype=FLOAT)]
    if exchanging:
        body += [
            node("groups", "Const", value=attributes.tensor(np.array([[0, 1]], np.int32))),
            node("sum", "CrossReplicaSum", "feed:output:0", "groups:output:0", T=FLOAT),
        ]
    library = [function("g0", body)]
    for level in range(1, depth):
        inner = node("call", "StatefulPartitionedCall", f=attributes.function(f"g{level - 1}"))
        library.append(function(f"g{level}", [inner]))
    branches = attributes.functions([f"g{depth - 1}"] * 2)
    call = node("call", "Case", "a", "^meta", cluster="c", branches=branches)
    with pytest.raises(EmulationError, match="InfeedDequeue 'feed' cannot be emulated"):
        definitions.lowered(double(call), *library)


def test_an_unknown_function_is_named() -> None:
    call = node("call", "PartitionedCall", "^meta", cluster="c", f=attributes.function("gone"))
    with pytest.raises(EmulationError, match="the function 'gone' is called and not known"):
        definitions.lowered(double(call))


def test_an_exchange_inside_of_an_op_that_calls_in_a_way_of_its_own_is_refused() -> None:
    inner = function("g", [GROUPS, node("sum", "CrossReplicaSum", "a", "groups:output:0")])
    call = node("call", "RemoteCall", "^meta", cluster="c", f=attributes.function("g"))
    with pytest.raises(EmulationError, match="RemoteCall 'call' cannot be emulated: replicas"):
        definitions.lowered(double(call), inner)


def test_a_program_that_a_dataset_runs_is_refused() -> None:
    # No TPU runs one there, and replicas that are not inlined all get the first one's variables.
    of_dataset = double(node("twice", "Mul", "a", "a", cluster="c"))
    of_dataset.attr["_tf_data_function"].b = True
    with pytest.raises(EmulationError, match=r"a dataset runs .* loop over a distributed dataset"):
        definitions.lowered(of_dataset)
