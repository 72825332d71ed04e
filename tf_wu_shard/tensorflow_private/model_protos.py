"""Empty messages of the kinds that model files hold; their classes are TensorFlow's own."""

from __future__ import annotations

from typing import Any

from tensorflow.core.framework import function_pb2, graph_debug_info_pb2, graph_pb2, variable_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2, tensor_bundle_pb2


def saved_model() -> Any:
    """What saved_model.pb holds."""
    return saved_model_pb2.SavedModel()


def meta_graph() -> Any:
    """What the .meta file of a checkpoint holds."""
    return meta_graph_pb2.MetaGraphDef()


def graph_def() -> Any:
    """A graph with its functions."""
    return graph_pb2.GraphDef()


def function_library() -> Any:
    """Functions alone."""
    return function_pb2.FunctionDefLibrary()


def variable_def() -> Any:
    """What a collection of variables holds of each."""
    return variable_pb2.VariableDef()


def bundle_entry() -> Any:
    """What the index of a checkpoint says of one tensor."""
    return tensor_bundle_pb2.BundleEntryProto()


def debug_info() -> Any:
    """The stack traces of a graph's ops."""
    return graph_debug_info_pb2.GraphDebugInfo()
