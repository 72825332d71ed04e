"""One graph of what a TPU program does to variables, out of all the functions that it runs."""
