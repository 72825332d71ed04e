"""Where TensorFlow and Keras keep what trains: names alone, nothing is imported."""

from __future__ import annotations

# Where the trainers are whose fit calls callbacks, by the package that is imported.
TRAINERS = {
    "keras": ("keras.src.backend.tensorflow.trainer", "TensorFlowTrainer"),
    "tf_keras": ("tf_keras.src.engine.training", "Model"),
}

# What calls all callbacks of a fit, by the package that is imported.
CALLBACK_LISTS = {
    "keras": ("keras.src.callbacks.callback_list", "CallbackList"),
    "tf_keras": ("tf_keras.src.callbacks", "CallbackList"),
}

# Where models are that users save, by the package that is imported.
MODELS = {
    "keras": ("keras.src.models.model", "Model"),
    "tf_keras": ("tf_keras.src.engine.training", "Model"),
}

# Where optimizers are, and by which method they apply gradients.
OPTIMIZERS = {
    "keras": (("keras.src.optimizers.base_optimizer", "BaseOptimizer", "apply"),),
    "tf_keras": (
        ("tf_keras.src.optimizers.optimizer", "Optimizer", "apply_gradients"),
        ("tf_keras.src.optimizers.legacy.optimizer_v2", "OptimizerV2", "apply_gradients"),
    ),
}

# TensorFlow's modules that look for a TPU.
TPU_MODULES = ("tensorflow.python.tpu.", "tensorflow.python.distribute.cluster_resolver.tpu.")
