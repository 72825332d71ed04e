"""Sums across processes: a thread of each worker takes part in rounds, on behalf of its steps."""
