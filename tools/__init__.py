"""What only a checkout needs."""
