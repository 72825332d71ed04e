"""How shards are summed and gathered on each ground."""
