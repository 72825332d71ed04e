"""What partial sums gain where workers are not equally fast, and what they cost in accuracy."""
