"""Programs in the manner of what people run, and what sharding does to each of them."""
