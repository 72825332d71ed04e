"""Replicas that exchange data by TensorFlow's collective ops: several GPUs of one process."""
