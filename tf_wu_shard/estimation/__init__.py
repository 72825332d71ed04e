"""Says what a sharded training would take, before anything is trained and without a strategy."""

# Loading TensorFlow registers the pass, which loads the stages: it must come before they do.
import tensorflow  # noqa: F401
