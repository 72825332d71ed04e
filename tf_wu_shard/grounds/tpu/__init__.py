"""Replicas of a TPU cluster: all run one program."""
