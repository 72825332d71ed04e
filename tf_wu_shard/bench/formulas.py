"""How many bytes a weight update reads and writes, and how long that takes at the copy speed.

Answers with arithmetic only: the traffic of an update that passes over each tensor once. It is a
yardstick and no law: a sum that is still in a cache when it is used, or gradients that are read
faster than memory is copied, can take a step slightly below its limit.
"""

from __future__ import annotations

from tf_wu_shard.bench.optimizers import SLOTS


def bytes_moved(optimizer: str, replicas: int, parameter_bytes: int) -> int:
    """Memory traffic of one sharded update of all replicas in one process, in bytes.

    With P parameter bytes and S slots (optimizer variables as large as the weight), each byte read
    or written counted once, over all N replicas together:

        read the N replicas' gradients      N P
        write and read their sum            2 P
        read and write w                    2 P
        read and write each slot            2 S P
        read and write the gathered w       2 P
                                            (N + 6 + 2 S) P

    Each replica touches 1/N of sum, w and slots, so these come to P over all replicas, and one
    gathered w serves them all. That makes

        sgd                                                       (N + 6) P
        momentum, nesterov, rmsprop, adagrad, lion                (N + 8) P
        adam, adamw, adamax, nadam, centered_rmsprop, adadelta,
        ftrl                                                      (N + 10) P
        amsgrad                                                   (N + 12) P

    AdamW's decay counts no second pass: it can be folded into the one write of w.

    Args:
        optimizer: A key of `tf_wu_shard.bench.optimizers.SLOTS`.
        replicas: N.
        parameter_bytes: P.
    """
    return (replicas + 6 + 2 * SLOTS[optimizer]) * parameter_bytes


def limit_s(no_update_s: float, moved: int, copy_bytes_per_s: float) -> float:
    """Seconds of a step at its limit: gradients, then the update's traffic at the copy speed.

    Args:
        no_update_s: The step without its update, seconds.
        moved: What `bytes_moved` says, bytes read plus bytes written.
        copy_bytes_per_s: Speed of a plain copy, bytes read plus bytes written a second.
    """
    return no_update_s + moved / copy_bytes_per_s
