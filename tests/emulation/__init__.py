"""A TPU program without a TPU: what it computes, what it refuses, and how it is lowered."""
