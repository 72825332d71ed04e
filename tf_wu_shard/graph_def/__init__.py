"""GraphDefs of TensorFlow 1: the explicit door to weight-update sharding."""

from tf_wu_shard.graph_def.rewrite import RewrittenGraphDef, VariableInShards, rewrite_graph_def

__all__ = ["RewrittenGraphDef", "VariableInShards", "rewrite_graph_def"]
