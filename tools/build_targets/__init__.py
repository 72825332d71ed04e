"""What the BUILD file says, derived from the imports of the sources."""
