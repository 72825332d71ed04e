"""The only folder that touches private TensorFlow, one concern a file."""
