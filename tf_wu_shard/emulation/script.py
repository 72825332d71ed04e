"""A TPU training script, unmodified, on a machine without a TPU."""

from __future__ import annotations

from tf_wu_shard.emulation.strategy import install, make_logical_cpus, put_on_cpus, torus
from tf_wu_shard.tensorflow_private import tpu_script, tpu_strategy


def emulate_tpus(num_replicas: int, topology: str | None = None) -> None:
    """Lets whatever this process does with TPUs from now on run on logical CPU devices.

    Every resolver finds the same TPU, every TPUStrategy is an emulated one. Call it before
    anything uses TensorFlow; it holds for the life of the process.

    Args:
        num_replicas: How many TPU devices there are to be.
        topology: The slice they form, such as "v5e:2x4". None for a plain ring.

    Raises:
        OptionError: The topology does not exist or has another number of devices.
        EmulationError: TensorFlow has already made fewer logical CPU devices.
    """
    if topology is None:
        ring = [(index, 0, 0, 0) for index in range(num_replicas)]
        where = tpu_strategy.tpu_topology((num_replicas, 1, 1), ring)
    else:
        where = torus(topology, num_replicas)
    make_logical_cpus(num_replicas)
    install()
    tpu_script.install(num_replicas, where, put_on_cpus)
