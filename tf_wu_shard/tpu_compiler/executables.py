"""Compiling a replica's module with JAX's PJRT clients: for a TPU that is not there, or for CPUs.

Runs where JAX is and TensorFlow is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax._src.lib import xla_client


def compile_ahead(module: Any, devices: Sequence[Any]) -> Any:
    """Compiles a module without a device at hand.

    Args:
        module: What `stablehlo_of` returned.
        devices: Those of a slice's description; replica i is for the i-th.

    Returns:
        JAX's executable, which cannot be run here.

    Raises:
        RuntimeError: The module does not compile.
    """
    with module.context:
        return devices[0].client.compile(
            module,
            executable_devices=xla_client.DeviceList(tuple(devices)),
            compile_options=_options(devices),
        )


def run(
    module: Any, devices: Sequence[Any], arguments: Sequence[Sequence[np.ndarray]]
) -> list[list[np.ndarray]]:
    """Compiles a module and runs it once, for real, with a replica on each device.

    Args:
        module: What `stablehlo_of` returned.
        devices: Of this process.
        arguments: For each replica the module's parameters.

    Returns:
        For each replica the module's results.

    Raises:
        RuntimeError: The module does not compile or fails.
    """
    with module.context:
        executable = devices[0].client.compile_and_load(
            module,
            executable_devices=xla_client.DeviceList(tuple(devices)),
            compile_options=_options(devices),
        )
    whole = [_on_devices(values, devices) for values in zip(*arguments, strict=True)]
    results = executable.execute_sharded(whole).disassemble_into_single_device_arrays()
    return [list(of_one) for of_one in zip(*_as_numpy(results), strict=True)]


def _options(devices: Sequence[Any]) -> Any:
    """One replica a device, in order, on both levels that PJRT looks at."""
    options = xla_client.CompileOptions()
    ids = np.array([[device.id] for device in devices])
    for level in (options, options.executable_build_options):
        level.num_replicas, level.num_partitions = len(devices), 1
    options.executable_build_options.device_assignment = xla_client.DeviceAssignment.create(ids)
    return options


def _on_devices(values: Sequence[np.ndarray], devices: Sequence[Any]) -> jax.Array:
    """One array whose copy on each device is that replica's own value.

    To JAX it is replicated; that the copies differ is between the replicas.
    """
    mesh = jax.sharding.Mesh(np.array(devices), ("replica",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    copies = [jax.device_put(v, device) for v, device in zip(values, devices, strict=True)]
    return jax.make_array_from_single_device_arrays(values[0].shape, sharding, copies)


def _as_numpy(results: Sequence[Sequence[Any]]) -> list[list[np.ndarray]]:
    return [[np.asarray(array) for array in of_result] for of_result in results]
