"""What was sharded, what was not and why, for people and for programs."""
