"""Says of a model in files what of its weight updates would be sharded, and why not the rest."""

# Loading TensorFlow registers the pass, which loads the stages: it must come before they do.
import tensorflow  # noqa: F401
