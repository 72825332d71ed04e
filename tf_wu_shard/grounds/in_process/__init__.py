"""Replicas that share one process: each has a copy of the program, on a device of its own."""
