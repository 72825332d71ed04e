"""Tests of what touches private TensorFlow."""
