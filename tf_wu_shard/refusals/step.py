"""Kinds of refusals: the whole step, its branches, its replicas, and one device in their place."""

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
    VARIABLES_OF_EACH_REPLICA = (
        "each replica has variables of its own, which stay alike by what it does (ON_READ)",
        lifted_by.MIRRORED,
    )
    NOT_ON_ALL_WORKERS = (
        "not all workers shard it: {said}",
        "the same program, options and version on all workers",
    )
    OTHER_VALUES_ELSEWHERE = (
        "workers hold different values of its variables when the step is traced",
        "one value on all workers before the step is traced, as all begin with or restore",
    )
    NO_GROUP = (
        "its sums over replicas are no collectives whose group others could join, as several GPUs"
        " and ShardingOptions(dialect='collective') need them",
        "the strategy's default cross_device_ops; on CPU devices of one process"
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
    SUMMED_IN_ROUNDS = (
        "workers sum its gradients in rounds that no step waits for (partial_gradient_sums), and"
        " the all-gather of a sharded update would wait for all workers",
        "partial_gradient_sums switched off, or its dataset from a deadline_dataset",
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
        "a gradient that the strategy sums over its replicas, in the same step as the update",
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


class Branches(Kind):
    """Why a branch that applies gradients is not written out: it has to stay a branch."""

    def __init__(self, why: str) -> None:
        """Says why."""
        super().__init__(f"its branches are not written out, as {why}", lifted_by.IN_THE_STEP)

    BRANCH_TAKES_VARIABLE_TWICE = (
        "it takes a variable twice, or one that replicas do not share, or one of unknown"
        " element type"
    )
    BRANCH_NEEDS_HANDLE = "{function} is not done with the values of variables"
    BRANCH_NOT_IN_VAIN = "{op_type} is not to run where its branch is not taken"
    BRANCH_MAY_FAIL = "{op_type} of whole numbers may fail where it is not to run"
    BRANCH_SHAPE_UNKNOWN = "the shape of what {op_type} yields is not known when traced"
    BRANCH_YIELDS_DIFFERENT_SHAPES = "its branches yield tensors of different shapes"
    BRANCH_DEFINITION_ONLY = "{function} is known by its definition alone"
    BRANCH_NO_TRUTH_VALUE = "its predicate is no truth value"
    BRANCH_YIELDS_NO_NUMBERS = "it yields a {dtype}"
    BRANCH_COMPILED = "{function}, which it calls, is compiled by XLA in one piece"
    BRANCH_FUSED_TWICE = "its branches update one variable in place more than once"


class Calls(Kind):
    """Why a function that the step calls, and that applies gradients, is not written out."""

    COMPILED_WITH = (
        "its update runs in {function}, which XLA compiles as a whole, with {op_type} in it",
        "jit_compile=False, for the function or the optimizer",
    )


class Replicas(Kind):
    """How the replicas' copies of one update differ, or may."""

    NOT_MIRRORED = (
        "it is not a mirrored variable with a component on every replica",
        lifted_by.MIRRORED,
    )
    NOT_TOUCHED = ("the step does not touch it on replica {replica}", lifted_by.ALIKE)
    WRITTEN_MORE_OFTEN = (
        "replica {replica} writes it another number of times than replica 0",
        lifted_by.ALIKE,
    )
    TWO_OPS_FOR_ONE = (
        "replica {replica} has both {other} and this op for {first} alone",
        lifted_by.ALIKE,
    )
    OTHER_VALUES = ("it takes other values on replica {replica} than on replica 0", lifted_by.ALIKE)
    OTHER_GRADIENTS = ("replicas 0 and {replica} use different gradients", lifted_by.ALIKE)
    OTHER_SHAPES = ("replicas 0 and {replica} use a gradient in different shapes", lifted_by.ALIKE)
    # Slots that are made inside of the step begin otherwise on the first replica than on others.
    OTHER_OP = (
        "replica {replica} has a {op_type} where replica 0 has a {first_type}, {first}",
        f"{lifted_by.ALIKE}; if the step itself makes its slots, {lifted_by.BUILT_BEFORE}",
    )
    OTHER_ATTRIBUTES = ("it differs from replica 0's {first}", lifted_by.ALIKE)
    OTHER_VARIABLES = ("replicas 0 and {replica} use different variables", lifted_by.MIRRORED)
    READ_AFTER_OTHER_WRITES = (
        "it reads its variable after other writes than on replica 0",
        lifted_by.ALIKE,
    )
    INPUT_OF_ONE_REPLICA = (
        "replica {replica} computes it from an input of its own",
        lifted_by.SAME_ON_ALL,
    )
    INPUT_OF_EACH_REPLICA = (
        "each replica computes it from an input of its own",
        lifted_by.SAME_ON_ALL,
    )
    OWN_VALUE = ("each replica keeps its own value of {variable}", lifted_by.MIRRORED)
    OWN_ARGUMENT = ("it may be another value on each replica", lifted_by.SAME_ON_ALL)
    OWN_RESULT = ("the result of {op_type} differs between replicas", lifted_by.SAME_ON_ALL)
    OWN_RUN = ("each replica runs a {op_type} of its own", lifted_by.SAME_ON_ALL)
    OUTSIDE_COMPILATION = (
        "it runs outside of the TPU program (outside compilation)",
        "an update inside of the TPU program",
    )


_ENTERS = "what replicas compute from their own batches enters its update by"


class Inspection(Kind):
    """What a step that was traced on one device does not show of the same step on replicas."""

    INSIDE_OF_BRANCH = (
        "its update runs inside of {op_type}, a branch or a loop",
        lifted_by.IN_THE_STEP,
    )
    TOO_MANY_VARIABLES = (
        "it depends on more than {most} variables of the step",
        lifted_by.OWN_GRADIENTS,
    )
    AMBIGUOUS_GRADIENT = (
        f"{_ENTERS} more than one value: where its gradient would be summed is ambiguous",
        lifted_by.TRACED_FOR_REPLICAS,
    )
    GRADIENT_OF_OTHER_TYPE = (
        f"{_ENTERS} {{value}}: that is of another element type than the weight",
        lifted_by.TRACED_FOR_REPLICAS,
    )
    GRADIENT_OF_NO_ROWS = (
        f"{_ENTERS} {{value}}, of shape {{shape}}: that is no row of {{table}} for each entry",
        lifted_by.TRACED_FOR_REPLICAS,
    )
    GRADIENT_OF_OTHER_SIZE = (
        f"{_ENTERS} {{value}}, of shape {{shape}}: that is no gradient of a weight of shape"
        f" {{weight}}",
        lifted_by.TRACED_FOR_REPLICAS,
    )
    GRADIENT_SHAPE_UNKNOWN = (
        "the shape of its gradient {value} is not known",
        lifted_by.FIXED_SHAPES,
    )
    ROWS_UNKNOWN = (
        "its gradient is sparse, and where its rows come from is unknown",
        lifted_by.DENSE,
    )
    ROWS_OF_TWO_GRADIENTS = (
        "its gradient is sparse, and another's names its rows by {op} too: which entries"
        " are whose is"
        " not known",
        "numbers of rows that are its own gradient's alone",
    )
    DENSE_ON_TPUS = (
        "its gradient is sparse here and would be dense on TPUs: how it is updated then, this step"
        " does not show",
        "a step that was traced for TPUs, in which its gradient is dense",
    )
