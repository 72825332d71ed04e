"""Reading a graph: one view of it, whatever it came from."""
