"""What each op does to the placement of its operands, in tables."""

from tf_wu_shard.rules import elementwise, shapes, sparse, sums

__all__ = ["elementwise", "shapes", "sparse", "sums"]
