"""The answer about steps, as frozen data."""
