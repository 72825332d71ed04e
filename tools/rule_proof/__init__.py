"""The proof of an op's rule: run it whole, run it in shards, compare."""
