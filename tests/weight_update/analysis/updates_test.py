"""An update is found with all its variables and every write, and described as one body."""

from __future__ import annotations

from tests.graph.text_graph import DIALECT, view_of
from tests.weight_update.analysis.steps import (
    MOMENTUM,
    REDUCED,
    SHAPES,
    STEP,
    analysis_of,
    reasons_of,
)
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import VariableRef
from tf_wu_shard.grounds.in_process.recognise import replica_devices
from tf_wu_shard.weight_update.analysis.analyze import analyze
from tf_wu_shard.weight_update.analysis.types import OperandKind


def test_a_weight_and_its_slot_are_one_update() -> None:
    analysis = analysis_of(MOMENTUM)
    assert analysis.num_replicas == 2
    assert (analysis.refused, analysis.refusals) == ((), ())
    (update,) = analysis.updates
    assert update.name == "w"
    assert [v.key for v in update.weights] == ["w"]
    assert [(v.key, v.handles, v.shape) for v in update.slots] == [("m", ("m0", "m1"), (4,))]
    assert update.reductions == (0,)
    assert update.devices == ("d0", "d1")


def test_the_body_is_one_program_and_names_its_ops_on_every_replica() -> None:
    (update,) = analysis_of(MOMENTUM).updates
    assert [(op.type, op.ops, op.variable) for op in update.body] == [
        ("AssignAddVariableOp", ("put0", "put1"), "m"),
        ("ReadVariableOp", ("moved0", "moved1"), "m"),
        ("AssignSubVariableOp", ("step0", "step1"), "w"),
    ]
    put, _, step = update.body
    assert [o.kind for o in put.operands] == [OperandKind.HANDLE, OperandKind.GRADIENT]
    assert (step.operands[1].kind, step.operands[1].index) == (OperandKind.BODY, 1)


def test_a_second_write_far_from_the_gradient_is_in_the_body() -> None:
    decay = """
    old# = ReadVariableOp(w#) [4] @d#
    rate = Const() {value=1} []
    shrunk# = Mul(old#, rate) [4] @d#
    decay# = AssignSubVariableOp(w#, shrunk#) @d#
    """
    text = decay + MOMENTUM.replace("step#", "late#").replace("late# =", "late# =")
    text = text.replace("moved#) @d#", "moved#) @d# ^decay#")
    (update,) = analysis_of(text).updates
    writes = [op.ops[0] for op in update.body if op.type.startswith("Assign")]
    assert writes == ["decay0", "put0", "late0"]


def test_an_average_that_cannot_be_shared_does_not_hold_its_weight_back() -> None:
    text = """
    seen# = ReadVariableOp(w#) [4] @d# ^step#
    decay = Placeholder() [?]
    part# = Mul(seen#, decay) [?] @d#
    follow# = AssignSubVariableOp(a#, part#) @d#
    """
    text, shapes = MOMENTUM + text, SHAPES | {"a": (4,)}
    analysis = analysis_of(text, variables=shapes)
    (update,) = analysis.updates
    assert [v.key for v in update.variables] == ["w", "m"] and analysis.refused == ()
    (left,) = map(str, analysis.refusals)
    assert left == (
        "a: written with a weight that was just updated, and not shared with it: the shape of its"
        " result is not known when traced (decay)"
    )
    # One that can be is a slot; and what writes the weight itself does hold it back.
    known = text.replace("Placeholder() [?]", "Placeholder() []").replace("[?]", "[4]")
    shared = analysis_of(known, variables=shapes)
    assert {v.key for v in shared.updates[0].slots} == {"a", "m"} and shared.refusals == ()
    own = text.replace("AssignSubVariableOp(a#, part#)", "AssignSubVariableOp(w#, part#)")
    assert reasons_of(analysis_of(own, variables=SHAPES)).keys() == {"w"}


def test_weights_that_one_average_joins_are_updates_of_their_own_without_it() -> None:
    text = (
        MOMENTUM
        + """
    other# = Tanh(x#) [4] @d#
    sum_b# = CollectiveReduceV2(other#, size, key) {merge_op=Add final_op=Id} [4] @d#
    step_b# = AssignSubVariableOp(b#, sum_b#) @d#
    seen# = ReadVariableOp(w#) [4] @d# ^step#
    seen_b# = ReadVariableOp(b#) [4] @d# ^step_b#
    both# = Mul(seen#, seen_b#) [4] @d#
    decay = Placeholder() [?]
    part# = Mul(both#, decay) [?] @d#
    follow# = AssignSubVariableOp(a#, part#) @d#
    """
    )
    shapes = SHAPES | {"a": (4,), "b": (4,)}
    analysis = analysis_of(text, variables=shapes, trainable=("w", "b"))
    assert [[v.key for v in u.variables] for u in analysis.updates] == [["w", "m"], ["b"]]
    assert analysis.refused == () and len(analysis.refusals) == 1
    # What is in one's own way stays there.
    odd = text.replace("AssignSubVariableOp(b#, sum_b#)", "AssignSubVariableOp(b#, odd#)")
    odd = odd.replace(
        "step_b# =", "own# = Placeholder() [4] @d#\nodd# = Mul(sum_b#, own#) [4] @d#\nstep_b# ="
    )
    analysis = analysis_of(odd, variables=shapes, trainable=("w", "b"))
    assert [u.name for u in analysis.updates] == ["w"] and reasons_of(analysis).keys() == {"b"}


def test_what_others_read_between_two_writes_is_a_version_of_the_weight() -> None:
    text = STEP.format("sum#") + "seen# = ReadVariableOp(w#) [4] @d# ^step#\n"
    text += "total# = L2Loss(seen#) [] @d#\nagain# = AssignSubVariableOp(w#, sum#) @d# ^seen#\n"
    text += "once# = AssignSubVariableOp(w#, sum#) @d# ^again#\n"
    (update,) = analysis_of(text, variables={"w": (4,)}, outputs=["total0", "total1"]).updates
    assert [(v.key, v.versions) for v in update.variables] == [("w", (1, 3))]


def test_what_only_the_body_reads_between_two_writes_is_none() -> None:
    again = """
    once# = AssignAddVariableOp(m#, sum#) @d# ^moved#
    old# = ReadVariableOp(w#) [4] @d# ^step#
    more# = Mul(old#, sum#) [4] @d#
    twice# = AssignSubVariableOp(w#, more#) @d#
    """
    (update,) = analysis_of(MOMENTUM + again).updates
    assert [(v.key, v.versions) for v in update.variables] == [("w", (2,)), ("m", ())]


def test_an_outside_scalar_is_a_scalar_and_an_outside_tensor_is_sliced() -> None:
    text = """
    rate = Const() {value=1} []
    one# = Const() {value=1} [1] @d#
    whole# = Const() {value=3} [4] @d#
    a# = Mul(sum#, rate) [4] @d#
    b# = Mul(a#, one#) [4] @d#
    c# = Mul(b#, whole#) [4] @d#
    step# = AssignSubVariableOp(w#, c#) @d#
    """
    (update,) = analysis_of(text, variables={"w": (4,)}).updates
    rate, one, whole = (op.operands[1] for op in update.body[:3])
    assert (rate.kind, rate.values) == (OperandKind.SCALAR, (Value("rate"), Value("rate")))
    assert (one.kind, one.values) == (OperandKind.SCALAR, (Value("one0"), Value("one1")))
    assert (whole.kind, whole.shape) == (OperandKind.SLICE, (4,))


def test_a_variable_that_the_step_also_reads_elsewhere_stays_whole() -> None:
    text = MOMENTUM + "seen# = ReadVariableOp(w#) [4] @d# ^step#\nlogits# = Sum(seen#) [] @d#\n"
    (update,) = analysis_of(text, outputs=["logits0", "logits1"]).updates
    assert [v.key for v in update.weights] == ["w"]
    text += "peek# = ReadVariableOp(m#) [4] @d# ^put#\nnorm# = Sum(peek#) [] @d#\n"
    (update,) = analysis_of(text, outputs=["logits0", "norm0", "norm1"]).updates
    assert [v.key for v in update.weights] == ["w", "m"]
    assert update.slots == ()


def test_a_weight_that_the_step_never_reads_is_a_weight_all_the_same() -> None:
    (update,) = analysis_of(MOMENTUM).updates
    assert not update.variables[0].is_slot


def test_two_gradients_of_one_variable_are_one_update() -> None:
    text = """
    h# = Neg(x#) [4] @d#
    more# = CollectiveReduceV2(h#, size, key) {merge_op=Add final_op=Id} [4] @d#
    first# = AssignSubVariableOp(w#, sum#) @d#
    then# = AssignSubVariableOp(w#, more#) @d# ^first#
    """
    (update,) = analysis_of(text, variables={"w": (4,)}).updates
    assert update.reductions == (0, 1)


def test_two_variables_with_gradients_of_their_own_are_two_updates() -> None:
    text = """
    h# = Neg(x#) [4] @d#
    more# = CollectiveReduceV2(h#, size, key) {merge_op=Add final_op=Id} [4] @d#
    first# = AssignSubVariableOp(w#, sum#) @d#
    then# = AssignSubVariableOp(v#, more#) @d#
    """
    analysis = analysis_of(text, variables={"w": (4,), "v": (4,)}, trainable=("w", "v"))
    assert [(u.name, u.reductions) for u in analysis.updates] == [("w", (0,)), ("v", (1,))]


def test_a_reduced_loss_that_reaches_no_variable_is_neither_update_nor_refusal() -> None:
    analysis = analysis_of("", variables={"w": (4,)}, outputs=["sum0", "sum1"])
    assert len(analysis.reductions) == 1
    assert (analysis.updates, analysis.refused) == ((), ())


def test_a_graph_that_reduces_nothing_has_no_replicas() -> None:
    view = view_of("c = Const()", variables=SHAPES)
    assert analyze(view, DIALECT).num_replicas == 0


def test_a_fused_update_knows_its_handles_scalars_and_gradient() -> None:
    text = """
    rate# = Const() {value=1} [] @d#
    momentum# = Const() {value=2} [] @d#
    apply# = ResourceApplyMomentum(w#, m#, rate#, sum#, momentum#) @d#
    """
    (update,) = analysis_of(text).updates
    (apply,) = update.body
    kinds = [o.kind.name for o in apply.operands]
    assert kinds == ["HANDLE", "HANDLE", "SCALAR", "GRADIENT", "SCALAR"]
    assert [v.key for v in update.slots] == ["m"]


def test_what_an_identity_passes_on_beside_a_gradient_is_no_part_of_its_update() -> None:
    # A sum within a replica has a gradient of its own, which hands its operand on beside it.
    text = """
    mean# = Neg(sum#) [4] @d#
    both# = IdentityN(mean#, g#) [4] @d#
    step# = AssignSubVariableOp(w#, both#) @d#
    """
    (update,) = analysis_of(text, variables={"w": (4,)}).updates
    assert [op.type for op in update.body] == ["Neg", "AssignSubVariableOp"]


def test_devices_are_known_only_where_all_variables_agree() -> None:
    assert replica_devices(view_of("", variables=SHAPES)) == ("d0", "d1")
    odd = VariableRef("z", 0, 2, (4,), 1, True, "d1")
    other = VariableRef("z", 1, 2, (4,), 1, True, "d0")
    assert replica_devices(view_of("", variables=SHAPES, refs={"z0": odd, "z1": other})) == ()
    # A variable that the graph holds in part says nothing.
    assert replica_devices(view_of("", variables=SHAPES, refs={"z0": odd})) == ("d0", "d1")
    assert replica_devices(view_of(REDUCED)) == ()


def test_a_slot_read_under_another_name_is_a_slot() -> None:
    text = MOMENTUM.replace("moved#) @d#", "named#) @d#")
    text += "shape# = Const() {value=4} [1] @d#\nagain# = Reshape(moved#, shape#) [4] @d#\n"
    text += "named# = Identity(again#) [4] @d#\n"
    (update,) = analysis_of(text).updates
    assert [v.key for v in update.slots] == ["m"]
    (update,) = analysis_of(text, outputs=["again1"]).updates
    assert update.slots == ()
