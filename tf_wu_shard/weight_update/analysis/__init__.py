"""From a graph view to the weight updates in it, and why others are not."""
