"""Prints what TensorFlow says of itself and its GPUs, as one line of JSON.

A process of its own asks, as a process that has asked for GPUs keeps some of their memory.
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
import re

import keras
import numpy as np
import tensorflow as tf


def main() -> None:
    """Prints `versions` and `gpus`, one object each with its name and compute capability."""
    build = tf.sysconfig.get_build_info()
    versions = {
        "python": platform.python_version(),
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "numpy": np.__version__,
        "cuda": str(build.get("cuda_version", "")),
        "cudnn": str(build.get("cudnn_version", "")),
    }
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"] or ""
        if re.fullmatch(r"nvidia-nccl-\w+|tf[-_]wu[-_]shard", name):
            versions[name] = distribution.version
    gpus = [
        {name: str(value) for name, value in tf.config.experimental.get_device_details(gpu).items()}
        for gpu in tf.config.list_physical_devices("GPU")
    ]
    print(json.dumps({"versions": versions, "gpus": gpus}))


if __name__ == "__main__":
    main()
