"""Time and memory of a sharded step against an unsharded one, each mode in a process of its own."""
