"""The coverage matrix: every optimizer with every training feature, sharded and not, compared."""
