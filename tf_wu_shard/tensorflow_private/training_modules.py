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

# What writes models to files, by the package that is imported: all that users call ends in these.
SAVES = {
    "keras": (
        ("keras.src.saving.saving_lib", "save_model"),
        ("keras.src.saving.saving_lib", "save_weights_only"),
        ("keras.src.legacy.saving.legacy_h5_format", "save_model_to_hdf5"),
    ),
    "tf_keras": (
        ("tf_keras.src.saving.saving_lib", "save_model"),
        ("tf_keras.src.saving.saving_lib", "save_weights_only"),
        ("tf_keras.src.saving.legacy.save", "save_model"),
        ("tf_keras.src.saving.legacy.save", "save_weights"),
    ),
    "tensorflow": (("tensorflow.python.saved_model.save", "save_and_return_nodes"),),
}

# Where optimizers are, and by which method they apply gradients.
OPTIMIZERS = {
    "keras": (("keras.src.optimizers.base_optimizer", "BaseOptimizer", "apply"),),
    "tf_keras": (
        ("tf_keras.src.optimizers.optimizer", "Optimizer", "apply_gradients"),
        ("tf_keras.src.optimizers.legacy.optimizer_v2", "OptimizerV2", "apply_gradients"),
    ),
}

# Where variables are, and by which method they get what TensorFlow stores.
VARIABLES = {"keras": ("keras.src.backend.tensorflow.core", "Variable", "_initialize")}

# TensorFlow's modules that look for a TPU.
TPU_MODULES = ("tensorflow.python.tpu.", "tensorflow.python.distribute.cluster_resolver.tpu.")
