"""Tests of the pass that shards the weight update."""
