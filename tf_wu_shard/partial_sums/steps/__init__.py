"""What is asked of a step whose replicas may be late: its sums, and what follows from which."""
