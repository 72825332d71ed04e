"""What the user asked for: the `weight_update_sharding` flag and the options it may carry.

Answers: is the flag on right now, and with which options. It keeps no state of its own: the flag
lives in TensorFlow's context, beside the options TensorFlow knows, so that it follows whatever
sets or resets that context. It does not promise that anything was sharded; the report says that.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal, TypeVar, get_args

from tf_wu_shard.errors import OptionError
from tf_wu_shard.grounds.registry import dialect_names

T = TypeVar("T")

FLAG = "weight_update_sharding"

OnRefusal = Literal["warn", "raise"]
GatherDtype = Literal["bfloat16"]
WireDtype = Literal["bfloat16"]
CompileUpdate = Literal["exact", "fast", False]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardingOptions:
    """How the weight update is to be sharded.

    Attributes:
        min_elements: Variables with fewer elements stay replicated; at least 1. None means 1024
            where all replicas share one process, 1 between workers, N * 1024 on N TPU cores.
        min_step_elements: A step that could shard fewer elements in all is left alone; at least 1,
            that is none. None means 1, but between workers on CPUs 1,000,000, below which sharding
            a step gains nothing, as collectives take milliseconds each: with 300,000 on 4
            workers it took as long and 1.2 times the processor's time. Where `min_elements` is
            given it means 1 there, too.
        bucket_bytes: Small variables travel together in buckets of about this many bytes; at
            least 1. A variable as large as this travels alone, uncopied. None means 256 KiB where
            all replicas share one process, 8 MiB between workers; on TPUs 20 MiB, or more where a
            step would have more than 24 collectives of a kind.
        on_refusal: What happens when a function is traced with the flag on and none of it can be
            sharded, or less than `min_sharded`: "warn" logs the reason, "raise" raises
            `NothingShardedError`, or `TooLittleShardedError`.
        min_sharded: The share, from 0 to 1, below which `on_refusal` applies to a function of which
            something is sharded. It is a share of the elements of all variables that the function
            updates from gradients summed over the replicas, small ones and those left alone
            included, and a share of the bytes of their optimizer slots: each must reach it; an
            optimizer without slots has the first alone. Each traced function is judged by itself,
            together with its branches and loops. At the default, 0, only a function of which
            nothing at all is sharded is refused. Below half there is a warning, whatever is asked.
        deterministic: Changes nothing yet. Between CPU devices, of one process or several,
            gradients are summed in the order of the replicas anyway, so that two runs agree bit for
            bit; NCCL and the TPU compiler have an order of their own.
        gather_dtype: What a TPU's weights travel in from their shards to the step that reads them.
            None moves a float32 weight as bfloat16 where every read of it in the step casts it to
            bfloat16 at once, which changes nothing, and in its own type elsewhere. "bfloat16" moves
            every float32 weight so: the step computes with rounded weights, the shards keep theirs.
        wire_dtype: What float32 gradients travel in between workers, and between replicas that
            exchange data by collectives. None is their own type. "bfloat16" halves the bytes: each
            replica's gradient is rounded to 8 bits, by 1/256 of itself at most, and the sum is
            made in float32. It changes nothing where replicas of a process read each other's
            gradients, nor on TPUs, where sums would be bfloat16, too.
        compile_update: Whether XLA compiles what an update computes on its shard, op after op, into
            about one pass over memory; on CPUs alone, and not for rows of tables, nor for updates
            that one replica does. "exact" keeps every bit: powers,
            exponentials, reciprocal square roots and whatever TensorFlow's graph optimizer may
            replace stay as they are. "fast" compiles them, too, and lets XLA round a product and a
            sum once. None is "exact" where shards are large enough to pay for the call. Each device
            compiles when the step first runs. False leaves all ops to their own kernels.
        agreement_seconds: How long workers of a MultiWorkerMirroredStrategy wait for each other to
            agree on sharding a step, when it is traced; more than 0. Where one did not answer, all
            are left as they were. All workers need the same.
        read_seconds: How long a worker that reads a whole slot, of which the others keep shards,
            waits for them outside of a step, such as to save a checkpoint; more than 0. Then it
            raises `StorageError`.
        dialect: How replicas of one process exchange data: "auto" is over edges between
            logical CPU devices and "collective" between GPUs; "collective" is by the strategy's
            own collectives (no GPU has run it yet); "reference" is the plainest one, slow, to hold
            the others against; or one of your own, see `tf_wu_shard.register_dialect`. On TPUs
            there is one way.

    Raises:
        OptionError: A field has the wrong type or is out of range.
    """

    min_elements: int | None = None
    min_step_elements: int | None = None
    bucket_bytes: int | None = None
    on_refusal: OnRefusal = "warn"
    min_sharded: float = 0.0
    deterministic: bool = False
    gather_dtype: GatherDtype | None = None
    wire_dtype: WireDtype | None = None
    compile_update: CompileUpdate | None = None
    agreement_seconds: float = 60.0
    read_seconds: float = 30.0
    dialect: str = "auto"

    def __post_init__(self) -> None:
        if self.min_elements is not None:
            _check_positive("min_elements", self.min_elements, "None for the default, or ")
        if self.min_step_elements is not None:
            _check_positive(
                "min_step_elements", self.min_step_elements, "None for the default, or "
            )
        if self.bucket_bytes is not None:
            _check_positive("bucket_bytes", self.bucket_bytes, "None for the default, or ")
        if self.gather_dtype is not None:
            _check_word("gather_dtype", self.gather_dtype, get_args(GatherDtype))
        if self.wire_dtype is not None:
            _check_word("wire_dtype", self.wire_dtype, get_args(WireDtype))
        if self.compile_update is not None:
            _check_word("compile_update", self.compile_update, get_args(CompileUpdate))
        _check_seconds("agreement_seconds", self.agreement_seconds)
        _check_seconds("read_seconds", self.read_seconds)
        _check_share("min_sharded", self.min_sharded)
        _check_word("on_refusal", self.on_refusal, get_args(OnRefusal))
        _check_word("dialect", self.dialect, dialect_names())
        if not isinstance(self.deterministic, bool):
            raise OptionError(
                "ShardingOptions.deterministic must be True or False,"
                f" not {_shown(self.deterministic)}"
            )


def parse_flag(value: object) -> ShardingOptions | None:
    """Reads a value of the flag.

    Args:
        value: True, False, None or a `ShardingOptions`.

    Returns:
        The options to shard with (the defaults for True), or None when the flag is off.

    Raises:
        OptionError: The value is anything else.
    """
    return read_flag(FLAG, ShardingOptions, value)


def read_flag(flag: str, kind: type[T], value: object) -> T | None:
    """Reads a value of a flag that may carry options.

    Args:
        flag: Its name.
        kind: Its options, all of which have defaults.
        value: True, False, None or options.

    Returns:
        The options (the defaults for True), or None when the flag is off.

    Raises:
        OptionError: The value is anything else.
    """
    if value is None or value is False:
        return None
    if value is True:
        return kind()
    if isinstance(value, kind):
        return value
    raise OptionError(
        f"the optimizer option {flag!r} must be True, False or a"
        f" tf_wu_shard.{kind.__name__}(...), not {_shown(value)}"
    )


def install_flag() -> None:
    """Teaches TensorFlow's context the flag; a second call changes nothing.

    Afterwards the flag is checked when it is set, shown when it is read, and a misspelt name of it
    raises. A flag that was set before counts.

    Raises:
        OptionError: The flag was already set, to a wrong value or under a misspelt name.
    """
    # Imported here, as the stages that only need ShardingOptions must not load TensorFlow.
    from tf_wu_shard.tensorflow_private import context_options

    context_options.install(FLAG, parse_flag)


def current_options() -> ShardingOptions | None:
    """Reads the flag from TensorFlow's live context; a few microseconds at most.

    Returns:
        The options to shard with, or None when the flag is off or was never set.

    Raises:
        OptionError: Something wrote a wrong value past the context's own setter.
    """
    from tf_wu_shard.tensorflow_private import context_options

    return parse_flag(context_options.option(FLAG))


def _check_positive(field: str, value: object, also: str) -> None:
    # bool is an int to Python; True elements is nobody's intention.
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise OptionError(
            f"ShardingOptions.{field} must be {also}an integer of at least 1, not {_shown(value)}"
        )


def _check_share(field: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise OptionError(
            f"ShardingOptions.{field} must be a share from 0 to 1, such as 0.5, not {_shown(value)}"
        )


def _check_seconds(field: str, value: object) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number and 0 < value < math.inf):  # type: ignore[operator]
        raise OptionError(
            f"ShardingOptions.{field} must be a number of seconds above 0, such as 30, not"
            f" {_shown(value)}"
        )


def _check_word(field: str, value: object, words: tuple[object, ...]) -> None:
    # 0 equals False, and is nobody's intention.
    if not any(type(value) is type(word) and value == word for word in words):
        valid = " or ".join(repr(word) for word in words)
        raise OptionError(f"ShardingOptions.{field} must be {valid}, not {_shown(value)}")


def _shown(value: object) -> str:
    return f"{value!r} ({type(value).__name__})"
