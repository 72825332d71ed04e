"""Weights that are written from no gradient reduction that the pass knows."""

from __future__ import annotations

from tests.graph.text_graph import DIALECT, view_of
from tests.weight_update.analysis.steps import (
    MOMENTUM,
    REDUCED,
    SHAPES,
    STEP,
    analysis_of,
    reasons_of,
    refused,
)
from tf_wu_shard.weight_update.analysis.analyze import analyze

TWO = {"w": (4,), "e": (4,)}


def test_a_trainable_variable_written_without_a_reduced_gradient_is_named() -> None:
    text = MOMENTUM + "own# = Placeholder() [4]\nset# = AssignVariableOp(e#, own#) @d#\n"
    analysis = analysis_of(text, variables={**SHAPES, "e": (4,)}, trainable=("w", "e"))
    assert reasons_of(analysis) == {
        "e": "AssignVariableOp writes it from no gradient known to be summed over replicas (set0)"
    }
    assert len(analysis.updates) == 1
    reset = text.replace("own# = Placeholder() [4]", "own# = Const() [4]")
    analysis = analysis_of(reset, variables={**SHAPES, "e": (4,)}, trainable=("w", "e"))
    assert reasons_of(analysis) == {} and analysis.untrained == {"e"}


def test_a_reduction_over_another_group() -> None:
    analysis = analysis_of(STEP.format("sum#"), variables={"w": (4,)}, trainable=())
    assert analysis.refusals == ()
    text = REDUCED.replace("value=2", "value=3")
    odd = analysis_of(
        text.replace("sum#", "odd#")
        .replace("size", "three")
        .replace("key =", "k =")
        .replace("x#", "y#")
        .replace("g#", "h#")
        + STEP.format("odd#"),
        variables={"w": (4,)},
    )
    assert odd.updates == ()
    # The weight tells the true reason: why its reduction is not taken.
    assert reasons_of(odd) == {"w": "its group has 3 members, the step 2 replicas (odd0)"}
    assert [r.where for r in odd.refusals] == ["odd1"]


def test_an_update_that_goes_on_from_its_slot_is_named_by_its_weight_and_what_stops_it() -> None:
    # m += sum; w -= m * rate * sorted(m). A schedule's op without a rule is not the reason.
    text = """
    put# = AssignAddVariableOp(m#, sum#) @d#
    moved# = ReadVariableOp(m#) [4] @d# ^put#
    sorted# = ReverseV2(moved#) [4] @d#
    present# = ReadVariableOp(s#) [] @d#
    rate# = Cumsum(present#) [] @d#
    scaled# = Mul(moved#, sorted#) [4] @d#
    rated# = Mul(scaled#, rate#) [4] @d#
    step# = AssignSubVariableOp(w#, rated#) @d#
    """
    analysis = analysis_of(text, variables={**SHAPES, "s": ()})
    assert reasons_of(analysis) == {"w": "no rule for ReverseV2 (sorted0)"}
    assert analysis.updates == ()


def test_a_weight_that_follows_another_one_is_no_update() -> None:
    # e = 0.5 w + e on each replica, from what all of them hold: nothing is summed over replicas.
    text = """
    half# = Const() {value=1} [] @d#
    ahead# = ReadVariableOp(w#) [4] @d#
    layer# = MatMul(ahead#, half#) [2] @d#
    seen# = Print(layer#) [2] @d#
    part# = Mul(ahead#, half#) [4] @d#
    follow# = AssignAddVariableOp(e#, part#) @d#
    """
    analysis = analyze(view_of(text, variables=TWO, trainable=("w", "e")), DIALECT)
    assert (analysis.refused, analysis.refusals) == ((), ())
    assert analysis.untrained == {"e"}
    # Of what no layer takes, such as a sum of gradients, a caller may know more.
    kept = text.replace("MatMul", "Mul").replace("[2]", "[4]")
    analysis = analyze(view_of(kept, variables=TWO, trainable=("w", "e")), DIALECT)
    assert (analysis.refused, analysis.untrained) == ((), frozenset())


def test_a_rate_that_one_replica_computes_for_all_makes_no_update() -> None:
    # A branch gets its gradients from the function around it, which tells of them.
    text = """
    taken# = Placeholder() [4] @d#
    rate = ReadVariableOp(s1) [] @d1
    scaled# = Mul(taken#, rate) [4] @d#
    step# = AssignSubVariableOp(w#, scaled#) @d#
    """
    analysis = analyze(view_of(text, variables={"w": (4,), "s": ()}), DIALECT)
    assert (analysis.refused, analysis.refusals) == ((), ())


def test_a_sum_over_replicas_that_nobody_knows_is_told_of() -> None:
    # Both replicas' values enter an op that is no known form of a reduction.
    text = """
    own# = ReadVariableOp(w#) [4] @d#
    both# = Maximum(own0, own1) [4] @d#
    step# = AssignSubVariableOp(e#, both#) @d#
    """
    analysis = analyze(view_of(text, variables=TWO, trainable=("w", "e")), DIALECT)
    assert reasons_of(analysis) == {
        "e": "AssignSubVariableOp writes it from no gradient known to be summed over replicas"
        " (step0)"
    }


def test_gradients_that_replicas_gather_and_add_up_themselves_are_told_of() -> None:
    text = """
    own# = Placeholder() [1,4] @d#
    all# = CollectiveGatherV2(own#, size, key) [2,4] @d#
    added# = Sum(all#, axis) [4] @d#
    step# = AssignSubVariableOp(w#, added#) @d#
    """
    constants = "size = Const() {value=2}\nkey = Const() {value=1}\naxis = Const() {value=0}\n"
    analysis = analyze(view_of(constants + text, variables={"w": (4,)}), DIALECT)
    assert reasons_of(analysis) == {
        "w": "AssignSubVariableOp writes it from no gradient known to be summed over replicas"
        " (step0)"
    }


def test_statistics_that_replicas_share_are_no_weight() -> None:
    # e = e/2 + sum/2, and the sum goes on into a layer: a synchronized batch normalization.
    statistics = """
    h# = Neg(x#) [4] @d#
    mean# = CollectiveReduceV2(h#, size, key) {merge_op=Add final_op=Id} [4] @d#
    centred# = Cumsum(mean#) [4] @d#
    ran# = AssignSubVariableOp(e#, mean#) @d#
    """
    analysis = analysis_of(MOMENTUM + statistics, variables={**SHAPES, "e": (4,)})
    assert [u.name for u in analysis.updates] == ["w"] and analysis.refused == ()


def test_where_no_weight_is_known_what_is_written_is_told_of() -> None:
    text = "sorted# = Cumsum(sum#) [4] @d#\n" + STEP.format("sorted#")
    analysis = analysis_of(text, variables={"w": (4,)}, trainable=())
    assert analysis.refusals == () and analysis.refused == ()
    text = "sorted# = Cumsum(sum#) [4] @d#\n" + STEP.format("sum#")
    analysis = analysis_of(text, variables={"w": (4,)}, trainable=())
    assert reasons_of(analysis) == {"w": "its update reaches no trainable variable (w)"}


def test_a_gradient_that_a_branch_takes_is_not_lost_before_it() -> None:
    """The step also computes with the weight, and other things are made of that."""
    functions = {"apply": ("h g", "a = AssignSubVariableOp(h, g)", "g")}
    text = """
    old# = ReadVariableOp(w#) [4] @d#
    odd# = Cumsum(old#) [4] @d#
    seen# = Sum(odd#) [] @d#
    taken# = If(seen#, w#, sum#) {then_branch=&apply else_branch=&apply} [4] @d#
    """
    reason = refused(text, functions=functions, outputs=["taken0", "taken1"])
    assert reason.startswith("its update runs inside of If, a branch")
