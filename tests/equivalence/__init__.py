"""The proof that sharding changes nothing: runs with it held against runs without."""
