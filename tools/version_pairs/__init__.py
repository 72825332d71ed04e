"""A TensorFlow and an interpreter at a time: found, installed, tried, written down."""
