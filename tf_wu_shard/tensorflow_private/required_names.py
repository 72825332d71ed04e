"""Every private name of TensorFlow that this folder uses, and whether the one installed has it.

Asked when TensorFlow is imported, so that one without them says so then, in one line, and not with
a traceback in the middle of a training. It does not promise that a name still means the same.
"""

from __future__ import annotations

import functools
import importlib
import types
from collections.abc import Iterator
from typing import Any

from tf_wu_shard.errors import UnsupportedTensorFlowError

# The releases that are tested; setup.py asks for the same ones.
SUPPORTED = ("2.18", "2.19", "2.20", "2.21")

# What modules hold, and after a colon their classes: what they define, or what a constructor of
# theirs gives to the object or to what it makes, such as the handle of a variable.
REQUIRED = {
    "compiler.tf2xla.ops.gen_xla_ops": (
        *("xla_all_reduce", "xla_optimization_barrier", "xla_reduce_scatter", "xla_replica_id"),
        *("xla_set_dynamic_dimension_size", "xla_sharding"),
    ),
    "core.framework.function_pb2": ("FunctionDefLibrary",),
    "core.framework.graph_debug_info_pb2": ("GraphDebugInfo",),
    "core.framework.graph_pb2": ("GraphDef",),
    "core.framework.variable_pb2": ("VariableDef",),
    "core.function.capture.capture_container:FunctionCaptures": (
        *("_by_ref_external", "_by_ref_internal", "_by_ref_tracetype", "_by_val_tracetype"),
        *("add_or_replace", "by_ref_external", "by_ref_internal", "by_ref_tracetype"),
    ),
    "core.function.polymorphism.function_cache": ("FunctionCache",),
    "core.function.polymorphism.function_cache:FunctionCache": ("_primary", "add", "delete"),
    "core.function.polymorphism.function_type": ("FunctionType",),
    "core.protobuf.meta_graph_pb2": ("MetaGraphDef",),
    "core.protobuf.saved_model_pb2": ("SavedModel",),
    "core.protobuf.tensor_bundle_pb2": ("BundleEntryProto",),
    "python.checkpoint.async_checkpoint_helper": ("AsyncCheckpointHelper",),
    "python.checkpoint.async_checkpoint_helper:AsyncCheckpointHelper": (
        *("_write", "checkpointer", "save"),
    ),
    "python.checkpoint.checkpoint": ("Checkpoint", "TrackableSaver"),
    "python.checkpoint.checkpoint:Checkpoint": ("_saver",),
    "python.checkpoint.checkpoint:TrackableSaver": (
        *("_graph_view", "_object_map", "restore", "save"),
    ),
    "python.checkpoint.functional_saver": ("MultiDeviceSaver",),
    "python.checkpoint.functional_saver:MultiDeviceSaver": (
        *("_num_unique_tasks", "_registered_savers", "_shardable_tensors_by_task", "save"),
    ),
    "python.checkpoint.graph_view": ("ObjectGraphView",),
    "python.checkpoint.graph_view:ObjectGraphView": ("breadth_first_traversal",),
    "python.checkpoint.sharding.sharding_util": ("ShardableTensor",),
    "python.checkpoint.sharding.sharding_util:ShardableTensor": (
        *("_tensor_save_spec", "checkpoint_key", "device", "slice_spec"),
    ),
    "python.client.pywrap_tf_session": (
        *("TF_DeleteBuffer", "TF_FunctionImportFunctionDef"),
        *("TF_GraphImportGraphDefWithResults", "TF_NewBufferFromString"),
    ),
    "python.client.session": ("BaseSession", "_DeviceAttributes"),
    "python.client.session:BaseSession": ("run",),
    "python.data.ops.iterator_ops:OwnedIterator": ("_iterator_resource",),
    "python.data.ops.multi_device_iterator_ops": ("OwnedMultiDeviceIterator",),
    "python.data.ops.multi_device_iterator_ops:OwnedMultiDeviceIterator": (
        *("_device_iterators", "_devices", "_element_spec", "_multi_device_iterator_resource"),
        "_source_device",
    ),
    "python.distribute.cluster_resolver.tpu.tpu_cluster_resolver:TPUClusterResolver": (
        *("_coordinator_address", "_coordinator_name", "_tpu", "_tpu_topology"),
        *("environment", "task_id", "task_type"),
    ),
    "python.distribute.collective_all_reduce_strategy": ("CollectiveAllReduceExtended",),
    "python.distribute.collective_all_reduce_strategy:CollectiveAllReduceExtended": (
        *("_cross_device_ops", "_get_replica_id_in_sync_group"),
    ),
    "python.distribute.cross_device_ops:CollectiveAllReduce": ("_launchers",),
    "python.distribute.cross_device_utils": ("INSTANCE_KEY_START_NUMBER",),
    "python.distribute.cross_device_utils:CollectiveKeys": ("_instance_key_table", "_lock"),
    "python.distribute.cross_device_utils:CollectiveReplicaLauncher": (
        *("_collective_keys", "_device", "_get_ordering_token", "_group_key"),
        "_options",
    ),
    "python.autograph.core.ag_ctx": ("ControlStatusCtx", "Status", "control_status_ctx"),
    "python.autograph.impl.api": ("tf_convert",),
    "python.distribute.distribute_lib": (
        *("StrategyBase", "StrategyExtendedV2", "get_strategy", "has_strategy"),
    ),
    "python.distribute.distribute_lib:StrategyBase": ("reduce", "run"),
    "python.distribute.distribute_lib:StrategyExtendedV2": ("batch_reduce_to",),
    "python.distribute.input_lib": ("_calculate_replicas_with_values",),
    "python.distribute.packed_distributed_variable": ("PackedDistributedVariable",),
    "python.distribute.packed_distributed_variable:PackedDistributedVariable": (
        *("_distributed_variables", "_handle", "packed_handle"),
    ),
    "python.distribute.tpu_strategy": (
        *("TPUExtended", "TPUStrategy", "TPUStrategyV1", "TPUStrategyV2"),
        "validate_run_function",
    ),
    "python.distribute.tpu_strategy:TPUExtended": (
        *("_create_variable", "_device_assignment", "_device_input_worker_devices"),
        *("_host_device", "_host_input_worker_devices", "_tpu_cluster_resolver", "_tpu_devices"),
        "_tpu_metadata",
    ),
    "python.distribute.tpu_values": ("TPUDistributedVariable", "TPUVariableMixin"),
    "python.distribute.values": (
        *("DistributedValues", "DistributedVariable", "Mirrored", "MirroredVariable"),
        *("PerReplica", "_MirroredSaveable"),
    ),
    "python.distribute.values:DistributedVariable": (
        *("_common_name", "_copy_trackable_to_cpu", "_distributed_container"),
        *("_gather_saveables_for_checkpoint", "_is_mirrored", "_packed_var", "_packed_variable"),
        *("_primary", "_update", "_update_cross_replica", "distribute_strategy"),
    ),
    "python.distribute.values:_MirroredSaveable": ("_mirrored_variable", "restore"),
    "python.distribute.values_util": ("get_current_replica_id_as_int",),
    "python.eager.backprop": ("GradientTape",),
    "python.eager.backprop:GradientTape": ("gradient",),
    "python.eager.context": (
        *("Context", "LogicalDevice", "PhysicalDevice", "anonymous_name", "context"),
        "ensure_initialized",
    ),
    "python.eager.context:Context": (
        *("_optimizer_experimental_options", "abort_collective_ops", "add_function_def"),
        *("check_collective_ops_peer_health", "clear_kernel_cache", "delete_config_key_value"),
        *("enable_collective_ops", "function_scope_id", "get_compiler_ir", "get_config_key_value"),
        *("get_function_def", "get_optimizer_experimental_options", "get_visible_devices"),
        *("has_function", "list_function_names", "list_logical_devices", "list_physical_devices"),
        *("remove_function", "set_config_key_value", "set_optimizer_experimental_options"),
    ),
    "python.eager.polymorphic_function.atomic_function": (
        *("AtomicFunction", "from_func_graph", "from_function_def"),
    ),
    "python.eager.polymorphic_function.atomic_function:AtomicFunction": (
        *("_c_func", "_cached_graph", "_children", "children", "definition", "graph"),
    ),
    "python.eager.polymorphic_function.concrete_function": ("ConcreteFunction",),
    "python.eager.polymorphic_function.concrete_function:ConcreteFunction": ("_call_flat",),
    "python.eager.polymorphic_function.polymorphic_function": (
        *("Function", "UnliftedInitializerVariable"),
    ),
    "python.eager.polymorphic_function.polymorphic_function:Function": (
        *("_autograph", "_clone", "python_function"),
    ),
    "python.eager.record": ("record_operation", "stop_recording"),
    "python.framework.c_api_util": (
        *("ScopedTFFunction", "ScopedTFImportGraphDefOptions", "ScopedTFImportGraphDefResults"),
    ),
    "python.framework.error_interpolation": ("create_graph_debug_info_def",),
    "python.framework.func_graph": (
        *("FuncGraph", "flatten", "func_graph_from_py_func", "pack_sequence_as"),
    ),
    "python.framework.func_graph:FuncGraph": (
        *("_add_function_recursive", "_c_graph", "_collections", "_device_function_stack"),
        *("_fallback_outer_graph", "_function_captures", "_functions", "_get_operation_by_name"),
        *("_mutation_lock", "_names_in_use", "_output_names", "_resource_tensor_inputs"),
        *("_saveable", "_saving_errors", "_seed_used", "_watched_variables"),
        *("_weak_outer_graph", "_weak_variables", "capture", "capture_by_value"),
        *("capture_call_time_value", "captures", "control_outputs", "internal_captures"),
        "deferred_internal_captures",
        *("is_control_flow_graph", "outer_graph", "structured_input_signature"),
        *("structured_outputs", "variables"),
    ),
    "python.framework.importer": ("_PopulateTFImportGraphDefOptions", "import_graph_def"),
    "python.framework.kernels": ("get_registered_kernels_for_op",),
    "python.framework.op_def_registry": ("get",),
    "python.framework.ops": (
        *("EagerTensor", "Operation", "SymbolicTensor", "executing_eagerly_outside_functions"),
        *("get_default_graph", "name_scope", "pack_eager_tensors", "uid"),
    ),
    "python.framework.ops:EagerTensor": ("_handle_data", "_numpy", "is_packed"),
    "python.framework.ops:Graph": ("_get_control_flow_context",),
    "python.framework.ops:Operation": ("_from_c_op", "_get_control_flow_context", "_set_attr"),
    "python.framework.ops:SymbolicTensor": ("consumers", "value_index"),
    "python.ops.collective_ops": ("all_gather_v2",),
    "python.ops.control_flow_ops": ("XLAControlFlowContext",),
    "python.ops.control_flow_util": ("GetContainingXLAContext",),
    "python.ops.control_flow_v2_func_graphs": ("CondBranchFuncGraph",),
    "python.ops.handle_data_util": ("copy_handle_data", "create_handle_data", "get_handle_data"),
    "python.ops.resource_variable_ops": (
        *("BaseResourceVariable", "ResourceVariable", "UninitializedVariable", "VariableSpec"),
        "variable_accessed",
    ),
    "python.ops.resource_variable_ops:ResourceVariable": (
        *("_cached_value", "_distribute_strategy", "_handle", "_in_graph_mode"),
        *("_parent_trackable", "_read_variable_op", "_restore_from_tensors"),
        *("_strided_slice_assign", "_type_spec", "_unique_id", "handle", "is_initialized"),
    ),
    "python.ops.resource_variable_ops:VariableSpec": (
        *("_from_components", "_to_components", "value_type"),
    ),
    "python.ops.script_ops": ("EagerFunc", "FuncRegistry", "_py_funcs"),
    "python.ops.script_ops:FuncRegistry": ("insert",),
    "python.saved_model.save_context": ("in_save_context",),
    "python.tpu.ops.tpu_ops": ("all_to_all", "collective_permute", "cross_replica_sum"),
    "python.tpu.tpu_replication": ("TPUReplicateContext",),
    "python.tpu.tpu_replication:TPUReplicateContext": ("get_replicated_var_handle",),
    "python.util.tf_decorator": ("make_decorator",),
    "python.tpu.tpu_strategy_util": (
        *("_INITIALIZED_TPU_SYSTEMS", "initialize_tpu_system_impl", "shutdown_tpu_system_impl"),
    ),
    "python.tpu.tpu_system_metadata": ("TPUSystemMetadata",),
    "python.tpu.tpu_system_metadata:TPUSystemMetadata": ("devices", "topology"),
    "python.trackable.base": ("SaveType", "Trackable", "VARIABLE_VALUE_KEY"),
    "python.trackable.base:SaveType": ("CHECKPOINT",),
    "python.trackable.base:Trackable": ("_lookup_dependency", "_trackable_children"),
    "python.training.saving.saveable_object": ("SaveSpec", "SaveableObject"),
    "python.training.saving.saveable_object:SaveSpec": ("tensor",),
    "python.training.saving.saveable_object:SaveableObject": ("specs",),
    "python.types.internal": ("NativeObject",),
    "python.util.compat": ("as_str",),
    "python.util.nest": ("flatten",),
}


def check() -> None:
    """Looks for all names, in one millisecond.

    Raises:
        UnsupportedTensorFlowError: Some are missing.
    """
    missing = list(missing_names())
    if not missing:
        return
    import tensorflow as tf

    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    first, *_, last = SUPPORTED
    series, minor = last.split(".")
    installed = getattr(tf, "__version__", "of an unknown version")
    raise UnsupportedTensorFlowError(
        f"tf_wu_shard cannot work with the installed TensorFlow {installed}: it lacks"
        f" {missing[0]}{more}; supported is TensorFlow {first} to {last}:"
        f" pip install --force-reinstall 'tensorflow>={first},<{series}.{int(minor) + 1}'"
    )


def missing_names() -> Iterator[str]:
    """What of the private names TensorFlow lacks, each with the module it should be in."""
    for place, names in REQUIRED.items():
        module_name, _, class_name = place.partition(":")
        module = _module(f"tensorflow.{module_name}")
        if module is None:
            yield f"tensorflow.{module_name}"
            continue
        owner = getattr(module, class_name, None) if class_name else module
        if owner is None:
            yield f"tensorflow.{module_name}.{class_name}"
            continue
        for name in names:
            if not hasattr(owner, name) and name not in _given(owner):
                yield ".".join(("tensorflow", *place.split(":"), name))


def _module(name: str) -> types.ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


@functools.cache
def _given(owner: Any) -> frozenset[str]:
    """The attributes that the constructors of a class name, and the fields of a dataclass."""
    if not isinstance(owner, type):
        return frozenset()
    codes = [
        method.__code__
        for kind in owner.__mro__
        for name, method in vars(kind).items()
        if name.startswith(("__init__", "_init_")) and isinstance(method, types.FunctionType)
    ]
    fields = getattr(owner, "__dataclass_fields__", ())
    return frozenset((*fields, *(name for code in codes for name in code.co_names)))
