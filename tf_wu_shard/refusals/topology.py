"""Kinds of refusals: the whole function."""

from __future__ import annotations

from tf_wu_shard.refusals import lifted_by
from tf_wu_shard.refusals.kind import Kind


class Topology(Kind):
    """What keeps the updates of a whole function as they were."""

    RUNS_EAGERLY = (
        "it runs eagerly, so no function is traced that could be rewritten",
        "a tf.function around the step; in Keras, compile without run_eagerly",
    )
    ONE_REPLICA = (
        "it trains on one replica: no gradient is reduced",
        "a strategy of several replicas, and variables made in its scope",
    )
    NOT_ON_ALL_WORKERS = (
        "not all workers shard it: {said}",
        "the same program, options and version on all workers",
    )
    NO_GROUP = (
        "its sums over replicas are no collectives whose group others could join, as several GPUs"
        " and ShardingOptions(dialect='collective') need them",
        "MirroredStrategy's default cross_device_ops, with no loop around the step; on CPU devices"
        " ShardingOptions(dialect='auto') does without",
    )
    VARIABLES_EXIST_ONCE = (
        "under {strategy} every variable exists once; nothing is replicated",
        "a strategy that keeps a copy of each variable on every replica, as MirroredStrategy does",
    )
    COMPILED_BY_XLA = (
        "XLA compiles the function as a whole (jit_compile=True), and cannot compile what devices"
        " exchange in a sharded update",
        "jit_compile=True on what computes the gradients alone, and not around the update",
    )
    NOT_ASKED_FOR = "nothing was asked for: it ran with --unsharded"
    PASS_FAILED = "the pass failed and left the function as it was: {error}"

    # TPU programs.
    SEVERAL_PROGRAMS = (
        "the function holds {count} TPU programs (call strategy.run once in each tf.function)",
        "one TPU program in each function",
    )
    SEVERAL_PROGRAMS_IN_GRAPH = (
        "it holds {count} TPU programs, which may use the same variables",
        "one TPU program in each graph",
    )
    NO_PROGRAM = (
        "it holds no TPU program (no TPUReplicateMetadata: was it made by"
        " tf.compat.v1.tpu.replicate?)"
    )
    PROGRAM_IN_FUNCTION = (
        "its TPU program stands inside of function {function!r}; only one that lies in the graph"
        " itself is rewritten",
        "a TPU program in the graph itself",
    )
    PROGRAM_OF_ONE_REPLICA = (
        "it runs on one replica: no gradient is reduced",
        "a TPU program of several replicas",
    )
    PARTITIONED_BY_XLA = (
        "XLA partitions the program itself over {cores} cores a replica (SPMD)",
        "replicas of one core each",
    )
    SEVERAL_CORES_A_REPLICA = (
        "each replica spreads over {cores} cores",
        "replicas of one core each",
    )
    ON_HOST = (
        "its op {op!r} runs on the host (outside compilation)",
        "a step without outside compilation",
    )
    TPU_EMBEDDINGS = (
        "it uses TPU embeddings ({op_type} {op!r}), whose tables keep their own",
        "embeddings that are variables of the model",
    )
    LOOP_OF_TENSORFLOW_1 = (
        "it holds a loop of TensorFlow 1 ({op_type} {op!r})",
        "building the graph after tf.compat.v1.enable_control_flow_v2()",
    )
    NO_GRADIENT_SUMMED = (
        "no gradient is summed over the replicas in its TPU program",
        lifted_by.SUMMED,
    )

    # Sums over the replicas.
    REPLICA_UNKNOWN = (
        "no mirrored variable of the step tells which replica runs it",
        lifted_by.MIRRORED,
    )
    NO_SUM = (
        "it reduces by {merge} and {final}, not to a sum",
        "a gradient that is summed, or averaged",
    )
    OTHER_GROUP = (
        "its group has {members} members, the step {replicas} replicas",
        lifted_by.ALL_REPLICAS,
    )
    SUM_OF_SOME_IN_THIS_GRAPH = (
        "not every replica takes part in this sum in this graph",
        lifted_by.ALL_REPLICAS,
    )
    SUM_OF_SOME = ("it sums over some of the replicas only", lifted_by.ALL_REPLICAS)
    SUMMED_DIFFERENTLY = (
        "some replicas add up what others average, or sum another element type",
        lifted_by.ALIKE,
    )
    NOT_SCATTERED = (
        "TPUs reduce no {dtype} to shards: XlaReduceScatter does not take it",
        "gradients of float32 or bfloat16",
    )
