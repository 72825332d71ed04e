"""Kinds of refusals: what pays and fits."""

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
        "the step updates {elements} elements in all, below min_step_elements={limit}",
        "ShardingOptions(min_step_elements=1); sharding so little gains nothing between processes",
    )
    ALL_IS_DONE = "its update touches no rows but those looked up, and has no slot: all is done"
    CUT_OTHERWISE = (
        "its slot {slot} lives in shards that another function cut: {cut}",
        "functions that are traced with the same options",
    )
    OTHER_SHAPE = "{variable} has another shape than {other}, {shape}"
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
