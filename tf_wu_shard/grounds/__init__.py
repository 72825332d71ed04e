"""What grounds are made of, one folder for each: where replicas run and how they exchange data."""
