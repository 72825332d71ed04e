"""A traced train step: what it captured, who runs it, and how it is swapped for another."""
