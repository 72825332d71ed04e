"""From an analysis and options to a sharding plan."""
