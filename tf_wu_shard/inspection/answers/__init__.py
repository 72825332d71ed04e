"""What is said of steps, as frozen data."""
