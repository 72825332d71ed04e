"""What worker processes agree on and exchange outside of a step, over a table that they share."""
