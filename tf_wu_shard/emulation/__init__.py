"""A `TPUStrategy` that runs anywhere: its replicas are logical CPU devices of this process."""

from tf_wu_shard.emulation.graph_def import lower_graph_def
from tf_wu_shard.emulation.strategy import emulated_tpu_strategy
from tf_wu_shard.errors import EmulationError

__all__ = ["EmulationError", "emulated_tpu_strategy", "lower_graph_def"]
