"""From a traced train step to what the TPU compiler makes of it, with no TPU."""
