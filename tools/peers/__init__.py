"""What users of JAX and PyTorch have, at the benchmark's work; run in an environment of their own.

Nothing here imports tf_wu_shard, as that environment has no TensorFlow.
"""
