"""Tests of tf_wu_shard.demo."""
