"""Kinds of refusals: what pays and fits, what can live in shards, what is compiled."""

from __future__ import annotations

from tf_wu_shard.refusals import lifted_by
from tf_wu_shard.refusals.kind import Kind


class Plan(Kind):
    """What an update could be shared for, and would not be worth it, or would fit no shards."""

    EMPTY = "it has no elements"
    TOO_SMALL = (
        "{elements} elements, below min_elements={limit}",
        "a lower min_elements; sharing so little costs more than it saves",
    )

    # The limit grows with the number of replicas: the variable need not be small.
    TOO_SMALL_FOR_REPLICAS = (
        "{elements} elements, below min_elements={limit}, for each of {replicas} replicas a tile of"
        " {tile}",
        "fewer replicas, or a lower min_elements: then part of what they exchange is padding",
    )
    STEP_TOO_SMALL = (
        "what the step could shard has {elements} elements in all, below min_step_elements={limit}",
        "ShardingOptions(min_step_elements=1); sharding so little gains nothing between processes",
    )
    ALL_IS_DONE = "its update touches no rows but those looked up, and has no slot: all is done"
    CUT_OTHERWISE = (
        "its slot {slot} lives in shards that another function cut: {cut}",
        "functions that are traced with the same options",
    )
    OTHER_SHAPE = "{variable} has another shape than {other}, {shape}"
    COMPILED_WHOLE = (
        "XLA compiles the function that updates it, and what is shared of it is {what}",
        "jit_compile=False, for the function or the optimizer",
    )
    NOTHING_TO_SHARE_WITH = (
        "there is one replica: nothing to share the update with",
        "more replicas",
    )
    CUT_SAVES_NOTHING = (
        "it and its slots have {size} elements; cut, every replica would hold {held}",
        lifted_by.FEWER_REPLICAS,
    )
    NO_TILE_EACH = (
        "its {size} elements do not fill a tile of every shard: those hold {held}",
        lifted_by.FEWER_REPLICAS,
    )


# Too small to be worth it: of all reasons those that matter least.
SMALL = frozenset({Plan.TOO_SMALL, Plan.TOO_SMALL_FOR_REPLICAS})


_UNSTORED = "{it} cannot be stored in shards:"
_IN_THE_PROGRAM = "uses of it inside of the TPU program alone"


class Storage(Kind):
    """Why a variable cannot live in shards."""

    # Who else uses it.
    CAPTURED = (
        "{it} is captured by {function}, traced before",
        "tracing the step before whatever else uses the variable; if the step itself makes"
        " its slots,"
        f" {lifted_by.BUILT_BEFORE}",
    )
    COPIES_APART = (
        "{it} may have copies that differ: {function} writes what each replica has of its own",
        "writing what was summed or averaged over the replicas alone",
    )
    COPIES_DIFFER = (
        "{it} does not hold the same values on all replicas when the step is traced",
        lifted_by.ONE_VALUE,
    )
    COPIES_READ = (
        "{it} is updated with {variable}, which does not hold the same values on all replicas"
        " when the step is traced",
        lifted_by.ONE_VALUE,
    )
    USED_BY_CALLEE = (
        "{it} is also used by a function that this one calls",
        f"uses of it in the function that updates it alone; {lifted_by.ONE_PLACE}",
    )
    USED_OUTSIDE = ("{it} is also used outside of the TPU program", _IN_THE_PROGRAM)
    USED_BY_HOST = ("{it} is used outside of the TPU program by {op} ({op_type})", _IN_THE_PROGRAM)
    HANDED_ON = (
        "{it} is handed to {op} ({op_type}), so it may be read inside of it; read its"
        " value before and"
        " use that",
        lifted_by.ITS_VALUE,
    )
    READ_BY_HANDLE = ("{it} is read by {op} ({op_type}), not as a value", lifted_by.ITS_VALUE)
    UPDATED_INSIDE_USED_OUTSIDE = (
        "{it} is updated inside of {op} and also used outside of it",
        "uses of it in one branch or loop alone",
    )
    UPDATED_INSIDE_USED_ELSEWHERE = (
        "{it} is updated inside of {op} and also used in another branch or loop",
        "uses of it in one branch or loop alone",
    )

    # What it is.
    NOT_PACKED = "{it} is not packed into one handle for all replicas"
    MADE_ANEW = "{it} is made anew in every run"
    SAME_AS_ANOTHER = "{it} is the same variable as {other}"
    NO_VALUE = (
        "{it} has no value yet, as this first step makes it (the next is traced again); build the"
        " optimizer before the first step: optimizer.build(model.trainable_variables)",
        lifted_by.BUILT_BEFORE,
    )
    OTHER_VARIABLE = (
        f"{_UNSTORED} it is a {{type}}, not an unsharded mirrored variable",
        lifted_by.MIRRORED,
    )
    OPEN_SHAPE = (f"{_UNSTORED} its shape {{shape}} is not fully known", lifted_by.FIXED_SHAPES)
    NOT_COPIED = f"{_UNSTORED} its dtype {{dtype}} has no copy kernel"
    NOT_PLAIN = f"{_UNSTORED} a component is not a plain eager variable, or reads through a cache"


_EXACT = 'ShardingOptions(compile_update="exact")'
_FAST = 'ShardingOptions(compile_update="fast"), which may round otherwise'


class Compiling(Kind):
    """Why XLA compiles nothing of what an update computes on its shards; it is sharded as ever."""

    SMALL_SHARDS = ("its shards have fewer than {limit} elements", _EXACT)
    ROWS_LOOKED_UP = "it updates as many rows of a table as a step looks up"
    LEFT_TO_AN_OWNER = "one replica computes it for all"
    DIVIDES_BY_ROOT = (
        "it divides by a square root, which TensorFlow's graph optimizer does in a way of its own",
        _FAST,
    )
    FEW_OPS = ("XLA computes fewer than two of its ops with the same bits", _FAST)
