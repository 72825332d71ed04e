"""Random programs that went wrong once, each as small as it could be made."""

from __future__ import annotations

from tests.equivalence.random_programs import Block, Program, Step


def _updated(weight: int, *slots: int) -> Block:
    """A gradient is added to slots of a weight, and subtracted from it."""
    gradient = ("gradient", weight)
    added = tuple(("write", (weight, slot), "assign_add", gradient) for slot in slots)
    return (("gradients", "sum"), *added, ("write", (weight, 0), "assign_sub", gradient))


_MOMENTUM = Step(_updated(0, 1))
_FIRST_AND_THEN = (("step", 0), ("step", 1), ("step", 0), ("step", 1))
_READ = ("read", (0, 1))
_STEPPED = ("write", (0, 0), "assign_sub", _READ)


def _after_a_step(later: Step, shape: tuple[int, ...] = (40, 12)) -> Program:
    """A step of momentum, whose slot lives in shards from then on, and another one."""
    return Program((shape,), (1,), steps=(_MOMENTUM, later), actions=_FIRST_AND_THEN)


FOUND = {
    "looked_at_in_branches_around_a_step": Program(
        ((3,),),
        (1,),
        steps=(
            Step(
                (
                    ("gradients", "mean"),
                    _STEPPED,
                    ("write", (0, 0), "assign", ("gradient", 0)),
                    ("write", (0, 1), "assign", ("add", _READ, ("times", 2.0, ("turn",)))),
                ),
                "between",
                (("branch", ("is_true",), (("look", (0, 0), "sum"),), ()),),
            ),
        ),
        actions=(("step", 0), ("step", 0)),
    ),
    "written_whole_what_lives_in_shards": _after_a_step(
        Step(
            (
                ("gradients", "sum"),
                ("write", (0, 1), "assign_sub", ("cumulative", ("gradient", 0))),
                ("write", (0, 0), "assign_sub", ("gradient", 0)),
            ),
            "between",
            (("look", (0, 1), "max"),),
        )
    ),
    "compiled_on_replicas": _after_a_step(
        Step((("call", (_STEPPED, ("look", (0, 1), "max")), True),))
    ),
    "compiled_over_a_dataset": _after_a_step(
        Step((("call", (("look", (0, 1), "max"), _STEPPED), True),), "dataset")
    ),
    "looped_in_a_call_of_the_host": Program(
        ((40, 12),),
        (2,),
        steps=(_MOMENTUM,),
        functions=(
            (
                (
                    "call",
                    (
                        ("write", (0, 1), "assign", ("read", (0, 2))),
                        ("loop", 2, False, (("write", (0, 1), "assign", _READ),)),
                    ),
                    False,
                ),
            ),
        ),
        actions=(("step", 0), ("function", 0), ("step", 0)),
    ),
    "looked_at_in_a_branch_before": _after_a_step(
        Step((("branch", ("is_false",), (), (("look", (0, 1), "max"),)), *_updated(0, 1))), (33,)
    ),
    "called_in_the_other_branch": _after_a_step(
        Step(
            (
                (
                    "branch",
                    ("is_true",),
                    (("write", (0, 1), "assign", _READ),),
                    (("call", (_STEPPED,), False),),
                ),
            )
        ),
        (24, 16),
    ),
    "called_beside_writes_in_a_branch_over_a_dataset": _after_a_step(
        Step(
            (
                (
                    "branch",
                    ("is_true",),
                    (
                        ("write", (0, 1), "assign_sub", ("times", 0.5, _READ)),
                        ("call", (("look", (0, 1), "sum"),), False),
                    ),
                    (),
                ),
            ),
            "dataset",
        )
    ),
    "called_beside_writes_in_a_loop": _after_a_step(
        Step(
            (
                (
                    "loop",
                    3,
                    True,
                    (
                        ("write", (0, 1), "assign_sub", ("times", 0.5, _READ)),
                        ("call", (("look", (0, 1), "sum"), _STEPPED), False),
                    ),
                ),
            ),
            "range",
        )
    ),
    "written_in_a_call_and_looked_at": Program(
        ((40, 12),),
        (1,),
        steps=(
            Step(
                (
                    ("call", (("write", (0, 1), "assign", ("read", (0, 0))),), False),
                    ("gradients", "sum"),
                    ("look", (0, 1), "max"),
                    *_updated(0, 1)[1:],
                ),
            ),
        ),
        actions=(("step", 0), ("step", 0)),
    ),
    "two_weights_written_by_their_gradients_alone": Program(
        ((24, 16), (24, 16)),
        (1, 1),
        steps=(
            Step(
                (
                    ("gradients", "sum"),
                    ("write", (0, 1), "assign", ("gradient", 0)),
                    ("write", (0, 0), "assign_sub", ("gradient", 0)),
                    ("write", (1, 1), "assign", ("flip", ("gradient", 1))),
                    ("write", (1, 0), "assign_sub", ("gradient", 1)),
                )
            ),
        ),
        actions=(("step", 0),),
    ),
    "looked_at_and_written_in_a_branch": Program(
        ((7, 5, 3),),
        (2,),
        steps=(
            Step(
                (
                    ("gradients", "mean"),
                    (
                        "branch",
                        ("is_true",),
                        (
                            ("look", (0, 1), "sum"),
                            ("write", (0, 1), "assign_add", ("read", (0, 2))),
                        ),
                        (),
                    ),
                    ("write", (0, 1), "assign", ("gradient", 0)),
                    ("write", (0, 0), "assign_sub", ("gradient", 0)),
                )
            ),
        ),
        actions=(("step", 0),),
    ),
    "called_in_a_call_that_only_asks_for_a_shape": Program(
        ((33,),),
        (1,),
        steps=(_MOMENTUM,),
        functions=(
            (
                ("look", (0, 1), "first"),
                (
                    "call",
                    (
                        ("call", (("write", (0, 0), "assign_add", _READ),), False),
                        ("shape", (0, 1)),
                    ),
                    False,
                ),
            ),
        ),
        actions=(("step", 0), ("function", 0), ("step", 0)),
    ),
}
