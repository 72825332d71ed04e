"""Numbers the variables of strategies of several workers, in the order in which they were made.

TensorFlow sends worker 0's initial value of each variable to all others when it is made, by a
collective. So all workers make the same variables in the same order, and a number means the same
variable on each of them. A name does not: names are counted for each process, and two models may
have equal ones.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from typing import Any

from tensorflow.python.distribute import collective_all_reduce_strategy

from tf_wu_shard.tensorflow_private.distributed_variables import noted_on

# Where a variable keeps its number.
_ATTRIBUTE = "_wu_shard_number"

_numbers = itertools.count()


def note(variable: Any) -> None:
    """Gives a variable the next number, if it is one of several workers and has none.

    Args:
        variable: A distributed variable that was just made.
    """
    strategy = variable._distribute_strategy
    if _ATTRIBUTE in vars(variable) or strategy is None:
        return
    if isinstance(strategy.extended, collective_all_reduce_strategy.CollectiveAllReduceExtended):
        setattr(variable, _ATTRIBUTE, next(_numbers))


def note_all(variables: Iterable[Any]) -> None:
    """Gives variables numbers that were made before any was counted.

    Args:
        variables: Distributed variables, in any order.
    """
    for variable in sorted(variables, key=_made):
        note(variable)


def number_of(variable: Any) -> int | None:
    """The number of a variable; None for one that is not distributed over several workers."""
    return noted_on(variable, _ATTRIBUTE)


def _made(variable: Any) -> int:
    # TensorFlow counts what a process makes, and puts the number behind the name; not in a graph,
    # which has no workers.
    count = re.search(r"_([0-9]+)$", str(variable._primary._unique_id))
    return int(count[1]) if count else -1
