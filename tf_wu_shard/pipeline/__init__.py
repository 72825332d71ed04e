"""The stages in a row: from a captured graph to the one that takes its place, and its storage."""
