"""Looks at the train step of a script that is run up to it, and no further."""
