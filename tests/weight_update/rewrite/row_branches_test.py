"""Of a condition each replica does one branch on its rows, and all the other one on the whole."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import tensorflow as tf

from tests.graph.tracing import bare_view
from tests.program.nodes import nodes
from tests.weight_update.rewrite.raw_steps import DEVICES
from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.op import Value
from tf_wu_shard.grounds.in_process.collectives import InProcess
from tf_wu_shard.layout import RowLayout, row_layout
from tf_wu_shard.placement import RowPlacement, What
from tf_wu_shard.replicas import in_this_process
from tf_wu_shard.weight_update.analysis.types import BodyOp, Operand, OperandKind, RowBranch
from tf_wu_shard.weight_update.rewrite.emission import Emission
from tf_wu_shard.weight_update.rewrite.row_branches import emit_branch

# A condition on a table, its entries and their rows, which yields entries and rows; per replica.
GRAPH = """
p{0} = Placeholder() {{dtype=10}}
table{0} = Placeholder() {{dtype=1}}
values{0} = Placeholder() {{dtype=1}}
rows{0} = Placeholder() {{dtype=9}}
c{0} = StatelessIf(p{0}, table{0}, values{0}, rows{0}) {{then_branch=&a else_branch=&b TYPES}}
""".replace("TYPES", "Tin=1,1,9 Tout=1,9")
OPERANDS = (
    RowPlacement(What.TABLE, shape=(16, 4)),
    RowPlacement(What.ENTRIES, "g", shape=(4,)),
    RowPlacement(What.ROWS, "g", num_rows=16),
)
RESULTS = (
    RowPlacement(What.ENTRIES, "c0", shape=(4,)),
    RowPlacement(What.ROWS, "c0", num_rows=16),
)
LAYOUT = row_layout((16, 4), 2, 4)


class Rows:
    """One replica's emitter, as far as a condition asks it."""

    def __init__(self, replica: int, builder: GraphBuilder) -> None:
        self.layout: RowLayout = LAYOUT
        self.update = SimpleNamespace(name="w", devices=DEVICES)
        places = builder.note(Value(f"places{replica}"), tf.int64.as_datatype_enum)
        self.places = {"g": places}
        types = (tf.float32, tf.float32, tf.int64)
        self._own = [
            builder.note(Value(f"own{number}_{replica}"), dtype.as_datatype_enum)
            for number, dtype in enumerate(types, 1)
        ]
        self.results: Sequence[Value] = ()
        self.instead = ""

    def operand(self, op: BodyOp, number: int) -> Value:
        return self._own[number - 1]

    def put_results(self, op: BodyOp, results: Sequence[Value], instead: str) -> None:
        self.results, self.instead = results, instead


class Emitted:
    """A condition, emitted."""

    def __init__(self, whole: str, results: Sequence[RowPlacement] = RESULTS) -> None:
        given = [node for r in range(2) for node in nodes(GRAPH.format(r))]
        for node in given:
            if node.op == "StatelessIf":
                node.attr["Tcond"].type = tf.bool.as_datatype_enum
        view = bare_view(tf.compat.v1.GraphDef(node=given))
        self.builder = GraphBuilder(view.ops, view.dtype)
        none: Any = None
        emission = Emission(view, self.builder, InProcess(in_this_process(DEVICES)), none)
        self.rows = [Rows(replica, self.builder) for replica in range(2)]
        condition = Operand(OperandKind.SCALAR, values=(Value("p0"), Value("p1")))
        body = Operand(OperandKind.BODY, index=0)
        op = BodyOp("StatelessIf", ("c0", "c1"), (condition, body, body, body))
        branch = RowBranch("else_branch", whole, OPERANDS, tuple(results))
        emitters: Any = self.rows
        self.replaced = emit_branch(emission, emitters, op, branch)
        self.new = {node.name: node for node in self.builder.nodes}

    def of(self, op_type: str) -> list[Any]:
        return [node for node in self.new.values() if node.op == op_type]

    def constant(self, name: str) -> Any:
        return tf.make_ndarray(self.new[name].attr["value"].tensor).tolist()

    def kept(self, node: Any) -> tuple[str, list[int], list[int]]:
        """Of a Slice: what it is of, and its sizes where the whole's branch is taken and not."""
        assert node.op == "Slice"
        _, taken, other = self.new[node.input[2]].input
        return node.input[0], self.constant(taken), self.constant(other)


def test_both_branches_are_done_on_rows_where_both_can_be() -> None:
    found = Emitted("")
    made = found.of("StatelessIf")
    assert len(found.new) == 2
    for replica, node in enumerate(made):
        own = [f"own{number}_{replica}" for number in (1, 2, 3)]
        assert [*node.input] == [f"p{replica}", *own] and node.device == DEVICES[replica]
        assert found.rows[replica].results == [Value(node.name), Value(node.name, 1)]
        assert found.rows[replica].instead == node.name


def test_the_old_condition_is_kept_once_and_each_replica_calls_the_other_branch_itself() -> None:
    found = Emitted("then_branch")
    (whole,) = found.of("StatelessIf")
    assert whole.device == DEVICES[0] and whole.input[0] == "p0"
    assert whole.attr["then_branch"].func.name == "a"
    calls = found.of("PartitionedCall")
    assert [(n.attr["f"].func.name, n.device) for n in calls] == [("b", d) for d in DEVICES]
    assert [[*n.input] for n in calls] == [
        [f"own{number}_{replica}" for number in (1, 2, 3)] for replica in range(2)
    ]
    assert [rows.instead for rows in found.rows] == [whole.name] * 2


def test_the_whole_gets_all_rows_where_its_branch_is_taken_and_none_elsewhere() -> None:
    found = Emitted("then_branch")
    (whole,) = found.of("StatelessIf")
    table, entries, rows = (found.new[name] for name in whole.input[1:])
    held = [found.kept(found.new[name]) for name in table.input[:2]]
    assert table.op == "ConcatV2"
    assert held == [(f"own1_{r}", [-1, -1], [0, -1]) for r in range(2)]
    # Entries come in the order in which they stood among all.
    for picked in (entries, rows):
        assert picked.op == "GatherV2"
        assert found.new[picked.input[1]].op == "InvertPermutation"
    numbers = [found.new[name] for name in found.new[rows.input[0]].input[:2]]
    shifted = [found.new[found.kept(n)[0]] for n in numbers]
    assert [(n.input[0], found.constant(n.input[1])) for n in shifted] == [
        *(("own3_0", 0), ("own3_1", 8)),
    ]


def test_a_replicas_results_are_its_part_of_the_one_branch_and_what_the_other_made() -> None:
    found = Emitted("then_branch")
    (whole,) = found.of("StatelessIf")
    for replica, call in enumerate(found.of("PartitionedCall")):
        values, rows = (found.new[v.op] for v in found.rows[replica].results)
        assert values.op == rows.op == "ConcatV2"
        of_whole, of_rows = (found.new[name] for name in values.input[:2])
        assert of_whole.op == "GatherV2" and of_whole.input[0] == whole.name
        # Where the branch on the whole is taken, the rows' branch adds none.
        assert found.kept(of_rows) == (call.name, [0, -1], [-1, -1])
        assert found.kept(found.new[rows.input[1]]) == (f"{call.name}:1", [0], [-1])
        # And the places of the new list are known from both.
        joined = found.new[found.rows[replica].places["c0"].op]
        assert found.kept(found.new[joined.input[1]])[0] == f"places{replica}"
        assert joined.input[0] == of_whole.input[1]


def test_which_branch_is_the_whole_ones_decides_when_it_is_taken() -> None:
    first, second = Emitted("then_branch"), Emitted("else_branch")
    taken = [{n.input[0] for n in found.of("SelectV2")} for found in (first, second)]
    assert taken[0] == {"p0", "p1"}
    negated = {n.name: n.input[0] for n in second.of("LogicalNot")}
    assert taken[1] == {*negated} and {*negated.values()} == {"p0", "p1"}


def test_the_shape_of_the_table_is_a_constant_to_others_and_the_shards_to_the_replica() -> None:
    found = Emitted("then_branch", (RowPlacement(What.TABLE_SHAPE), RESULTS[1]))
    assert found.replaced.keys() == {Value("c0"), Value("c1")}
    assert {tuple(found.constant(v.op)) for v in found.replaced.values()} == {(16, 4)}
    assert [found.constant(rows.results[0].op) for rows in found.rows] == [[8, 4], [8, 4]]
